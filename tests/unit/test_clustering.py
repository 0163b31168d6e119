"""Differential: correlation clustering against a plain-Python transcription of VOTE and GREEDY, on random records."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thalweg import clustering
from thalweg.clustering import Clustering, Records, Ties, finish, greedy, merge, read, update, vote
from thalweg.errors import ThalwegError
from thalweg.model import aggregate_state

NAMES = ["Anna Meier", "Jonas Weber", "Maria Lopez", "Wei Chen", "Olu Adeyemi", "Zoë Ångström", ""]


def misspelt(rng: random.Random, text: str) -> str:
    if text and rng.random() < 0.6:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(["", "x", text[at] * 2]) + text[at + 1 :]
    return text.upper() if rng.random() < 0.2 else text


def random_records(rng: random.Random, n: int) -> pa.RecordBatch:
    texts = [None if rng.random() < 0.05 else misspelt(rng, rng.choice(NAMES)) for _ in range(n)]
    streets = [rng.choice(["Elm St 1", "Oak Ave 22", "oak ave 23", None]) for _ in range(n)]
    ids = rng.sample(range(1000), n)
    return pa.record_batch({"id": pa.array(ids), "name": pa.array(texts, pa.string()), "street": pa.array(streets)})


# -- plain Python


def tokens_of(row: dict[str, Any], tokens: str) -> set[Any]:
    found: set[Any] = set()
    for column, text in list(row.items())[1:]:
        text = (text or "").lower()
        if tokens == "words":
            found |= {(column, word) for word in text.split()}
        else:
            octets = f" {text} ".encode()
            found |= {(column, octets[i : i + 3]) for i in range(len(octets) - 2)}
    return found


def tie(a: set[Any], b: set[Any], threshold: float) -> float:
    either = len(a | b)
    return (len(a & b) / either if either else 1.0) - threshold


def plain_vote(sets: list[set[Any]], threshold: float) -> list[list[int]]:
    clusters: list[list[int]] = []
    for i, tokens in enumerate(sets):
        votes = [sum(tie(tokens, sets[j], threshold) for j in cluster) for cluster in clusters]
        if votes and max(votes) > 0:
            clusters[votes.index(max(votes))].append(i)
        else:
            clusters.append([i])
    return clusters


def between(first: list[int], second: list[int], ties: list[list[float]]) -> float:
    return sum(ties[i][j] for i in first for j in second if i != j)


def plain_greedy(clusters: list[list[int]], ties: list[list[float]]) -> list[list[int]]:
    clusters = [list(c) for c in clusters]
    better = True
    while better:
        better = False
        waiting = deque(i for i, c in enumerate(clusters) if c)
        while waiting:
            for changed in plain_step(clusters, waiting.popleft(), ties):
                better = True
                if changed not in waiting:
                    waiting.append(changed)
    return [c for c in clusters if c]


def plain_step(clusters: list[list[int]], at: int, ties: list[list[float]]) -> list[int]:
    mine, others = clusters[at], [i for i, c in enumerate(clusters) if c and i != at]
    if not mine:
        return []
    gains = {i: between(mine, clusters[i], ties) for i in others}
    if gains and max(gains.values()) > clustering.EPSILON:
        best = max(gains, key=lambda i: gains[i])
        clusters[best] += mine
        clusters[at] = []
        return [best]
    staying = {i: between([i], mine, ties) for i in sorted(mine)}
    worst = min(staying, key=lambda i: staying[i])
    if staying[worst] < -clustering.EPSILON:
        mine.remove(worst)
        place = max([at, *others]) + 1
        clusters[place:] = [[worst]]
        return [at, place]
    moves = {(i, c): between([i], clusters[c], ties) - staying[i] for i in sorted(mine) for c in others}
    if moves and max(moves.values()) > clustering.EPSILON:
        record, target = max(moves, key=lambda move: moves[move])
        mine.remove(record)
        clusters[target].append(record)
        return [at, target]
    return []


def worth(clusters: list[list[int]], ties: list[list[float]]) -> float:
    return sum(between(c, c, ties) / 2 for c in clusters)


def groups_of(labels: Any) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for i, label in enumerate(labels.tolist()):
        found.setdefault(label, []).append(i)
    return sorted(found.values())


# -- compared


@pytest.mark.parametrize("tokens", ["trigrams", "words"])
@pytest.mark.parametrize("seed", range(4))
def test_ties_are_the_jaccard_similarity_of_tokens(seed: int, tokens: str) -> None:
    batch = random_records(random.Random(seed), 30)
    sets = [tokens_of(row, tokens) for row in batch.to_pylist()]
    ties = Ties(read(batch, tokens), 0.4)
    for i in range(30):
        wanted = [tie(sets[i], sets[j], 0.4) if i != j else 0.0 for j in range(30)]
        np.testing.assert_allclose(ties.of(i, 30), wanted, atol=1e-12)
        np.testing.assert_allclose(ties.of(i, i), wanted[:i], atol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_vote_is_that_of_the_paper(seed: int) -> None:
    rng = random.Random(seed)
    batch = random_records(rng, rng.choice([0, 1, 2, 25, 60]))
    tokens, threshold = rng.choice(["trigrams", "words"]), rng.choice([0.3, 0.5, 0.7])
    labels = vote(Ties(read(batch, tokens), threshold), np.zeros(0, np.int64))
    wanted = plain_vote([tokens_of(row, tokens) for row in batch.to_pylist()], threshold)
    assert groups_of(labels) == sorted(wanted)


@pytest.mark.parametrize("seed", range(12))
def test_vote_goes_on_where_it_was(seed: int) -> None:
    rng = random.Random(seed)
    batch = random_records(rng, 40)
    cut = rng.randrange(41)
    state = Clustering()
    for part in (batch.slice(0, cut), batch.slice(cut)):
        state = update(state, part, threshold=0.5, tokens="trigrams")
    whole = update(Clustering(), batch, threshold=0.5, tokens="trigrams")
    assert state.labels.tolist() == whole.labels.tolist()


@pytest.mark.parametrize("seed", range(12))
def test_greedy_is_that_of_the_paper(seed: int) -> None:
    """From clusterings as bad as random ones, so that merges, splits and moves all come up."""
    rng = random.Random(seed)
    batch = random_records(rng, rng.choice([1, 10, 30]))
    sets = [tokens_of(row, "trigrams") for row in batch.to_pylist()]
    n = len(sets)
    ties = [[tie(sets[i], sets[j], 0.5) if i != j else 0.0 for j in range(n)] for i in range(n)]
    labels = np.array([rng.randrange(1 + n // 4) for _ in range(n)], np.int64)
    begun: dict[int, list[int]] = {}
    for i, label in enumerate(labels.tolist()):
        begun.setdefault(label, []).append(i)
    found = groups_of(greedy(Ties(read(batch, "trigrams"), 0.5), labels))
    assert worth(found, ties) >= worth(list(begun.values()), ties)
    assert plain_greedy([list(c) for c in found], ties) == found, "nothing is left to improve"
    in_order = np.array([list(begun).index(label) for label in labels.tolist()], np.int64)
    found = groups_of(greedy(Ties(read(batch, "trigrams"), 0.5), in_order))
    assert found == sorted(sorted(c) for c in plain_greedy(list(begun.values()), ties))


@pytest.mark.parametrize("seed", range(8))
def test_the_order_in_which_clusterings_meet_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    batch = random_records(rng, 48)
    parts = [update(Clustering(), batch.slice(i, 8), threshold=0.5, tokens="trigrams") for i in range(0, 48, 8)]
    results = []
    for _ in range(4):
        rng.shuffle(parts)
        waiting = list(parts)
        while len(waiting) > 1:
            first, second = waiting.pop(rng.randrange(len(waiting))), waiting.pop(rng.randrange(len(waiting)))
            waiting.append(merge(first, second))
        results.append(finish(waiting[0], threshold=0.5))
    assert all(result == results[0] for result in results)
    assert sorted(id_ for cluster in results[0] for id_ in cluster) == sorted(batch.column(0).to_pylist())


def test_misspelt_names_are_found_across_parts() -> None:
    names = ["Anna Meier", "Jonas Weber", "Ana Meier", "Jonas Webber", "Anna Maier", "Wei Chen"]
    batch = pa.record_batch({"id": pa.array(range(6)), "name": pa.array(names)})
    parts = [update(Clustering(), batch.slice(i, 2), threshold=0.4, tokens="trigrams") for i in (0, 2, 4)]
    assert finish(merge(merge(parts[0], parts[1]), parts[2]), threshold=0.4) == [[0, 2, 4], [1, 3], [5]]


def test_no_records_make_no_clusters_and_those_without_an_id_are_left_out() -> None:
    assert finish(Clustering(), threshold=0.5) == []
    batch = pa.record_batch({"id": pa.array([None, "b"], pa.string()), "name": pa.array(["x", "x"])})
    assert finish(update(Clustering(), batch, threshold=0.5, tokens="words"), threshold=0.5) == [["b"]]
    assert len(Records()) == 0


@pytest.mark.parametrize(
    "options",
    [{"threshold": 0}, {"threshold": 1.5}, {"threshold": "half"}, {"threshold": float("nan")}, {"tokens": "letters"}],
)
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(ThalwegError, match="correlation clustering"):
        clustering.define(**options)


def test_a_type_of_ids_that_is_none_is_refused() -> None:
    with pytest.raises(ThalwegError, match="array<array<number>>"):
        clustering.define(ids="number")


def test_texts_are_wanted() -> None:
    with pytest.raises(ThalwegError, match="an id and one text or more"):
        read(pa.record_batch({"id": pa.array([1])}), "words")


def test_a_state_is_kept_and_read_again() -> None:
    batch = random_records(random.Random(3), 20)
    state = update(Clustering(), batch, threshold=0.5, tokens="words")
    for kept in (Clustering(), state):
        back = clustering.decode(aggregate_state.decode(aggregate_state.encode(clustering.encode(kept))))
        assert finish(back, threshold=0.5) == finish(kept, threshold=0.5)
        assert back.records.ids == kept.records.ids
        assert np.array_equal(back.labels, kept.labels)
