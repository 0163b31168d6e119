"""Unit: what queries ask, by what has come and gone, is what it is when all of them are asked anew."""

from __future__ import annotations

import random

import pytest

from thalweg.optimize.asking import AskingOrder, ask_otherwise

Asking = dict[str, tuple[str, ...]]


def asked_anew(queries: Asking) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for id_, things in queries.items():
        for thing in things:
            found.setdefault(thing, []).append(id_)
    return {thing: tuple(ids) for thing, ids in found.items()}


def otherwise(before: Asking, after: Asking) -> dict[str, tuple[str, ...]]:
    ids = list(after)
    tail = len(ids)
    while tail and ids[tail - 1] not in before:
        tail -= 1
    gone = {id_: things for id_, things in before.items() if after.get(id_) != things}
    new = {id_: things for id_, things in after.items() if before.get(id_) != things}
    order = AskingOrder({id_: rank for rank, id_ in enumerate(ids)}, tail, after.__getitem__)
    return ask_otherwise(asked_anew(before), gone, new, order)


@pytest.mark.parametrize("seed", range(200))
def test_queries_come_go_and_change(seed: int) -> None:
    rng = random.Random(seed)
    things = [f"t{i}" for i in range(rng.choice((3, 8, 30)))]

    def drawn() -> tuple[str, ...]:
        return tuple(rng.sample(things, rng.randint(0, min(4, len(things)))))

    queries: Asking = {f"q{i}": drawn() for i in range(rng.randint(0, 12))}
    for step in range(6):
        listed = [(id_, asks) for id_, asks in queries.items() if rng.random() < 0.85]
        listed = [(id_, drawn() if rng.random() < 0.1 else asks) for id_, asks in listed]
        for i in range(rng.choice((0, 1, 3))):
            at = len(listed) if rng.random() < 0.6 else rng.randint(0, len(listed))
            listed.insert(at, (f"n{step}{i}", drawn()))
        found, expected = otherwise(queries, dict(listed)), asked_anew(dict(listed))
        assert list(found.items()) == list(expected.items())
        queries = dict(listed)
