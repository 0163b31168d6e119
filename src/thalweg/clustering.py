"""Correlation clustering of the records in a window: which of them mean the same thing.

The second application by which Dalton is measured: VOTE clusters the records of a group where they arrive, GREEDY
makes one clustering of all these when the window closes. Both are quadratic in the records of a group, unlike a sum.

    thalweg.clustering.define("same_voters")
    CREATE QUERY voters AS
    SELECT zip, same_voters(id, name, street) AS clusters, window.end AS until
    FROM registry GROUP BY zip, window(ts, '60 seconds', '20 seconds')

Records are alike by the share of tokens that they have in common (Jaccard), from 0 to 1. A pair counts with its
similarity less `threshold`: what a clustering is worth is the sum over the pairs that it puts together, and with a
threshold of one half the best one has the least of the usual cost (dissimilar together, similar apart).

Dalton's paper names the two algorithms and says where each runs; what they do is from the papers it cites, and the
similarity is a choice of ours. VOTE (Elsner and Schudy 2009): each record in turn joins the cluster to which it is
tied best, or begins one where no tie is positive. GREEDY (Gruenheid, Dong and Srivastava 2014): clusters wait in a
queue; each in turn is merged with another, split, or made to give a record away where that is an improvement, and
whoever changed queues again, until a whole round changes nothing. Both are heuristics: another cut of the rows into
batches and tasks can give another, about as good, clustering.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.errors import bad_clustering
from thalweg.route.hash import hash_rows
from thalweg.user_aggregates import aggregate

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint64]
EPSILON = 1e-9
"""A change must be better by more than what sums of doubles are off by, or GREEDY could go in circles."""


def define(
    name: str = "correlation_clusters", *, threshold: float = 0.5, tokens: str = "trigrams", ids: str = "bigint"
) -> None:
    """Defines the aggregate `name(id, text, ...)`, which gives the clusters of a group: arrays of ids.

    `tokens`: trigrams (of bytes, in lower case) or words of the texts; those of different columns are different.
    `ids`: the SQL type of the ids. A record without an id is left out, a text that is NULL has no tokens.
    """
    if not isinstance(threshold, (int, float)) or not 0 < threshold < 1:
        raise bad_clustering("threshold", threshold, "above 0 and below 1")
    if tokens not in _TOKENS:
        raise bad_clustering("tokens", tokens, f"one of {', '.join(_TOKENS)}")
    aggregate(
        name,
        Clustering,
        partial(update, threshold=float(threshold), tokens=tokens),
        merge,
        partial(finish, threshold=float(threshold)),
        returns=f"array<array<{ids}>>",
        encode=encode,
        decode=decode,
    )


@dataclass(frozen=True)
class Records:
    """What is known of some records: the sorted tokens of the first, then those of the second, and so on."""

    ids: tuple[Any, ...] = ()
    codes: Codes = field(default_factory=lambda: np.zeros(0, np.uint64))
    offsets: Ints = field(default_factory=lambda: np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def plus(self, other: Records) -> Records:
        offsets = np.concatenate([self.offsets, other.offsets[1:] + self.offsets[-1]])
        return Records(self.ids + other.ids, np.concatenate([self.codes, other.codes]), offsets)

    def take(self, order: Ints) -> Records:
        lengths = np.diff(self.offsets)[order]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        places = np.repeat(self.offsets[:-1][order], lengths) + within
        return Records(tuple(self.ids[i] for i in order.tolist()), self.codes[places], offsets)


@dataclass(frozen=True)
class Clustering:
    """The state of the aggregate: records, and in which cluster each is."""

    records: Records = field(default_factory=Records)
    labels: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


# -- the aggregate


def update(state: Clustering, batch: pa.RecordBatch, *, threshold: float, tokens: str) -> Clustering:
    """The clustering with the records of the batch in it, by VOTE."""
    records = state.records.plus(read(batch, tokens))
    return Clustering(records, vote(Ties(records, threshold), state.labels))


def merge(state: Clustering, other: Clustering) -> Clustering:
    """Two clusterings side by side. GREEDY waits for the last: the order in which they meet does not matter."""
    first = int(state.labels.max()) + 1 if len(state.labels) else 0
    return Clustering(state.records.plus(other.records), np.concatenate([state.labels, other.labels + first]))


def finish(state: Clustering, *, threshold: float) -> list[list[Any]]:
    """The clusters after GREEDY, each sorted, in the order of their first ids."""
    order = _canonical_order(state)
    records = state.records.take(order)
    labels = greedy(Ties(records, threshold), _in_order_of_appearance(state.labels[order]))
    clusters: dict[int, list[Any]] = {}
    for label, id_ in zip(labels.tolist(), records.ids, strict=True):
        clusters.setdefault(label, []).append(id_)
    return sorted(sorted(cluster) for cluster in clusters.values())


def encode(state: Clustering) -> tuple[tuple[Any, ...], Codes, Ints, Ints]:
    """The state as it is kept."""
    return state.records.ids, state.records.codes, state.records.offsets, state.labels


def decode(kept: tuple[tuple[Any, ...], Codes, Ints, Ints]) -> Clustering:
    ids, codes, offsets, labels = kept
    return Clustering(Records(ids, codes, offsets), labels)


def _canonical_order(state: Clustering) -> Ints:
    """Whatever came first: by id, and records of one id by what they are and by whom they are with."""
    records = state.records
    tokens = [records.codes[a:b].tolist() for a, b in zip(records.offsets[:-1], records.offsets[1:], strict=True)]
    company: dict[int, list[Any]] = {}
    for label, id_ in zip(state.labels.tolist(), records.ids, strict=True):
        company.setdefault(label, []).append(id_)
    company = {label: sorted(ids) for label, ids in company.items()}
    labels = state.labels.tolist()
    order = sorted(range(len(records)), key=lambda i: (records.ids[i], tokens[i], company[labels[i]]))
    return np.array(order, np.int64)


def _in_order_of_appearance(labels: Ints) -> Ints:
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


# -- the algorithms


class Ties:
    """How much it speaks for two records being one cluster: their similarity less the threshold."""

    def __init__(self, records: Records, threshold: float) -> None:
        found, numbers = np.unique(records.codes, return_inverse=True)
        self._numbers, self._offsets, self._threshold = numbers, records.offsets, threshold
        self._mine = np.zeros(len(found), bool)
        self.sizes = np.diff(records.offsets)

    def of(self, record: int, until: int) -> Floats:
        """The ties of a record to the records before `until`, 0 to itself."""
        offsets, sizes = self._offsets, self.sizes
        mine = self._numbers[offsets[record] : offsets[record + 1]]
        self._mine[mine] = True
        hits = np.concatenate([[0], np.cumsum(self._mine[self._numbers[: offsets[until]]])])
        self._mine[mine] = False
        common = hits[offsets[1 : until + 1]] - hits[offsets[:until]]
        either = sizes[:until] + sizes[record] - common
        # Two records without tokens are alike.
        ties: Floats = np.where(either == 0, 1.0, common / np.maximum(either, 1)) - self._threshold
        if record < until:
            ties[record] = 0.0
        return ties

    def __len__(self) -> int:
        return len(self.sizes)


def vote(ties: Ties, labels: Ints) -> Ints:
    """VOTE: the records that `labels` does not speak of join the clusters, one after the other."""
    known, clusters = len(labels), int(labels.max(initial=-1)) + 1
    labels = np.concatenate([labels, np.zeros(len(ties) - known, np.int64)])
    for record in range(known, len(ties)):
        votes = np.bincount(labels[:record], weights=ties.of(record, record), minlength=clusters)
        best = int(votes.argmax()) if clusters else 0
        if clusters == 0 or votes[best] <= 0:
            best, clusters = clusters, clusters + 1
        labels[record] = best
    return labels


def greedy(ties: Ties, labels: Ints) -> Ints:
    """GREEDY: a clustering that no merge of two clusters, no split and no move of one record makes better."""
    votes = _Votes(ties, labels)
    better = True
    while better:  # all of them again: a change of one cluster can make it attractive to a record of any other
        better = False
        waiting = deque(np.unique(votes.labels).tolist())
        while waiting:
            changed = _improve(votes, waiting.popleft())
            waiting.extend(c for c in changed if c not in waiting)
            better = better or bool(changed)
    return votes.labels


class _Votes:
    """How every record is tied to every cluster, kept up to date."""

    def __init__(self, ties: Ties, labels: Ints) -> None:
        self.labels = labels.copy()
        self._ties = ties
        n, clusters = len(ties), int(labels.max(initial=-1)) + 1
        self._sums = np.zeros((n, clusters + 1))
        for record in range(n):
            self._sums[record, :clusters] = np.bincount(labels, ties.of(record, n), clusters)

    def of(self, members: Ints) -> Floats:
        """By cluster; there is nothing to be tied to in an empty one."""
        clusters = self.unused
        sums = self._sums[members, :clusters]
        sums[:, np.bincount(self.labels, minlength=clusters) == 0] = -np.inf
        return sums

    @property
    def unused(self) -> int:
        """A number that no cluster has, nor one above it."""
        return int(self.labels.max()) + 1

    def merge(self, cluster: int, into: int) -> None:
        self._sums[:, into] += self._sums[:, cluster]
        self._sums[:, cluster] = 0.0
        self.labels[self.labels == cluster] = into

    def move(self, record: int, to: int) -> None:
        if to == self._sums.shape[1]:
            self._sums = np.hstack([self._sums, np.zeros_like(self._sums)])
        ties = self._ties.of(record, len(self._ties))
        self._sums[:, self.labels[record]] -= ties
        self._sums[:, to] += ties
        self.labels[record] = to


def _improve(votes: _Votes, cluster: int) -> tuple[int, ...]:
    """Makes one improvement of a cluster and gives the clusters that changed."""
    members = np.flatnonzero(votes.labels == cluster)
    if len(members) == 0:
        return ()
    sums = votes.of(members)
    staying = sums[:, cluster].copy()
    sums[:, cluster] = -np.inf
    together = sums.sum(axis=0)
    if together.max() > EPSILON:
        votes.merge(cluster, into=int(together.argmax()))
        return (int(together.argmax()),)
    worst = int(staying.argmin())
    if staying[worst] < -EPSILON:
        new = votes.unused
        votes.move(int(members[worst]), new)
        return cluster, new
    gains = sums.max(axis=1) - staying
    most = int(gains.argmax())
    if gains[most] > EPSILON:
        target = int(sums[most].argmax())
        votes.move(int(members[most]), target)
        return cluster, target
    return ()


# -- tokens


def read(batch: pa.RecordBatch, tokens: str) -> Records:
    """The records of a batch: the first column is the id, the others are texts."""
    if batch.num_columns < 2:
        raise bad_clustering("its arguments", batch.schema.names, "an id and one text or more")
    batch = batch.filter(batch.column(0).is_valid())
    pairs = [_TOKENS[tokens](batch.column(i).cast(pa.string()), i) for i in range(1, batch.num_columns)]
    rows, codes = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    order = np.lexsort((codes, rows))
    rows, codes = rows[order], codes[order]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (rows[1:] != rows[:-1]) | (codes[1:] != codes[:-1])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows[fresh], minlength=batch.num_rows))])
    return Records(tuple(batch.column(0).to_pylist()), codes[fresh], offsets.astype(np.int64))


def _trigrams(texts: pa.Array, column: int) -> tuple[Ints, Codes]:
    """(record, token) for every three bytes in a row of the texts, with a blank at either end."""
    padded = pc.binary_join_element_wise(" ", pc.utf8_lower(pc.fill_null(texts, "")), " ", "").cast(pa.large_binary())
    offsets = np.frombuffer(padded.buffers()[1], np.int64)[: len(padded) + 1]
    data = padded.buffers()[2]
    octets = np.frombuffer(data, np.uint8).astype(np.uint64) if data is not None else np.zeros(0, np.uint64)
    counts = np.maximum(np.diff(offsets) - 2, 0)
    rows = np.repeat(np.arange(len(padded)), counts)
    starts = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + offsets[:-1][rows]
    codes = octets[starts] << 16 | octets[starts + 1] << 8 | octets[starts + 2]
    return rows, codes | np.uint64(column) << np.uint64(24)


def _words(texts: pa.Array, column: int) -> tuple[Ints, Codes]:
    """(record, token) for every word of the texts."""
    lists = pc.utf8_split_whitespace(pc.utf8_lower(pc.fill_null(texts, "")))
    rows, words = pc.list_parent_indices(lists).to_numpy().astype(np.int64), lists.flatten()
    written = pc.not_equal(words, "").to_numpy(zero_copy_only=False)
    codes = hash_rows([pa.chunked_array([words])], rows=len(words)) ^ (np.uint64(column) << np.uint64(56))
    return rows[written], codes[written]


_TOKENS: dict[str, Callable[[pa.Array, int], tuple[Ints, Codes]]] = {"trigrams": _trigrams, "words": _words}
