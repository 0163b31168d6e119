"""Generators of rows, each with its options. As JSON: an object with the generator's name and all its options."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

_Count = Annotated[int, Meta(ge=1)]
_Rate = Annotated[float, Meta(gt=0)]
_Skew = Annotated[float, Meta(ge=0, description="The exponent of the skew of keys; 0: none is more frequent.")]
_Users = Annotated[_Count, Meta(description="How many different users.")]
_Packs = Annotated[_Count, Meta(description="How many different packs.")]
_PerUser = Annotated[_Count, Meta(description="How many different packs a user buys; none: any.")]
_Keys = Annotated[_Count, Meta(description="How many different values a key has.")]


class _Options(Struct, frozen=True, forbid_unknown_fields=True, tag_field="name"):
    seed: Annotated[int, Meta(ge=0, description="The same seed gives the same rows.")] = 0
    rows: Annotated[int, Meta(ge=0, description="How many; none: without end.")] | None = None
    rows_per_second: Annotated[_Rate, Meta(description="Of event time: not how fast they come.")] | int = 1000
    rows_per_batch: Annotated[_Count, Meta(description="How many a batch takes at most.")] = 1_000_000
    start: Annotated[str, Meta(description="The first event time.")] = "2024-01-01T00:00:00Z"
    out_of_order: Annotated[float, Meta(ge=0, description="Seconds by which a row may come late.")] = 0.0
    pace: Annotated[_Rate, Meta(description="Rows a second of real time; none: as fast as they are read.")] | None = (
        None
    )


class Purchases(_Options, frozen=True, tag="purchases"):
    users: _Users = 10_000
    packs: _Packs = 500
    packs_per_user: _PerUser | None = None
    zipf: _Skew = 0.0


class Ads(_Options, frozen=True, tag="ads"):
    users: _Users = 10_000
    packs: _Packs = 500
    packs_per_user: _PerUser | None = None
    zipf: _Skew = 0.0


class AJoin(_Options, frozen=True, tag="ajoin"):
    keys: _Keys = 500
    stream: Annotated[_Count, Meta(description="Which of the streams: each has other rows.")] = 1
    zipf: _Skew = 0.0


class Facts(_Options, frozen=True, tag="facts"):
    keys: _Keys = 500
    many: Annotated[_Count, Meta(description="How many different values the column `d` has.")] = 100_000
    zipf: _Skew = 0.0


Generator = Purchases | Ads | AJoin | Facts
GENERATORS: dict[str, type[Generator]] = {"purchases": Purchases, "ads": Ads, "ajoin": AJoin, "facts": Facts}


def name_of(generator: Generator) -> str:
    return str(generator.__struct_config__.tag)
