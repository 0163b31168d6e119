"""Generators of rows, each with its options. As JSON: an object with the generator's name and all its options."""

from __future__ import annotations

import msgspec


class _Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="name"):
    seed: int = 0
    rows: int | None = None
    rows_per_second: int | float = 1000
    rows_per_batch: int = 1_000_000
    start: str = "2024-01-01T00:00:00Z"
    out_of_order: float = 0.0
    pace: float | None = None


class Purchases(_Options, frozen=True, tag="purchases"):
    users: int = 10_000
    packs: int = 500
    packs_per_user: int | None = None
    zipf: float = 0.0


class Ads(_Options, frozen=True, tag="ads"):
    users: int = 10_000
    packs: int = 500
    packs_per_user: int | None = None
    zipf: float = 0.0


class AJoin(_Options, frozen=True, tag="ajoin"):
    keys: int = 500
    stream: int = 1
    zipf: float = 0.0


class Facts(_Options, frozen=True, tag="facts"):
    keys: int = 500
    many: int = 100_000
    zipf: float = 0.0


Generator = Purchases | Ads | AJoin | Facts
GENERATORS: dict[str, type[Generator]] = {"purchases": Purchases, "ads": Ads, "ajoin": AJoin, "facts": Facts}


def name_of(generator: Generator) -> str:
    return str(generator.__struct_config__.tag)
