"""Dalton, DAGreedy and Prompt as the papers tell them: plain Python, one row after another, slow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

MASK = 2**64 - 1
DEPTH, WIDTH = 4, 4096


def finalize(z: int) -> int:
    """SplitMix64's finalizer."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class ExactCounts:
    def __init__(self) -> None:
        self.rows: Counter[int] = Counter()

    def add(self, key: int) -> int:
        self.rows[key] += 1
        return self.rows[key]

    def estimate(self, key: int) -> int:
        return self.rows[key]


class CountMin:
    def __init__(self, width: int = WIDTH) -> None:
        self.width = width
        self.counters = [[0] * width for _ in range(DEPTH)]

    def places(self, key: int) -> list[int]:
        mixed = finalize(key & MASK)
        signed = mixed - 2**64 if mixed >= 2**63 else mixed
        return [(signed + i * ((signed >> 32) | 1)) % self.width for i in range(DEPTH)]

    def add(self, key: int) -> int:
        for row, place in zip(self.counters, self.places(key), strict=True):
            row[place] += 1
        return self.estimate(key)

    def estimate(self, key: int) -> int:
        return min(row[place] for row, place in zip(self.counters, self.places(key), strict=True))


class HotKeyPartitioner:
    """What Dalton and DAGreedy have in common: windows, loads, fragments, heavy hitters."""

    fewest = 32

    def __init__(
        self,
        workers: int,
        homes: Mapping[int, int],
        *,
        slide: int,
        slides: int,
        stats_rows: int | None,
        hot_share: float,
        sketch: bool = False,
    ) -> None:
        self.n, self.homes, self.slide_length, self.slides = workers, homes, slide, slides
        self.stats_rows, self.hot_share = stats_rows, hot_share
        self.counts_of = CountMin if sketch else ExactCounts
        self.row = 0
        self.slide: int | None = None
        self.loads: dict[int, Counter[int]] = defaultdict(Counter)
        self.extra: Counter[int] = Counter()
        self.fragments: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.fragment_slide, self.fragment_slides = 0, slides
        self.hot: dict[int, int] = {}
        """Hot key -> statistics window in which it was last a heavy hitter."""
        self.tracked: dict[int, int] = {}
        """Key that is or was hot -> its rows in the statistics window."""
        self.window = 0
        self.heavy = 0
        self.load = 0
        self.so_far = 0
        self.stats_end = 0
        self.counts: ExactCounts | CountMin = self.counts_of()

    def oldest(self) -> int:
        return self.fragment_slide - self.fragment_slides + 1

    def holders(self, key: int) -> set[int]:
        return {w for s, ws in self.fragments[key].items() if s >= self.oldest() for w in ws}

    def turn_windows(self, order: int) -> None:
        slide = order // self.slide_length
        if self.slide is None or slide > self.slide:
            self.slide = slide
            for old in [s for s in self.loads if s <= slide - self.slides]:
                del self.loads[old]
            if self.fragment_slides == self.slides:
                self.fragment_slide = slide
        if self.stats_rows is not None and self.row >= self.stats_end:
            self.stats_end = self.row + self.stats_rows
            self.end_statistics()

    def end_statistics(self) -> None:
        self.hot = {key: heavy for key, heavy in self.hot.items() if heavy >= self.window}
        self.tracked = {key: 0 for key in self.tracked if key in self.hot or self.holders(key) - {self.homes[key]}}
        self.load = self.so_far or self.load
        self.so_far = self.heavy = 0
        self.window += 1
        self.counts = self.counts_of()

    def observe(self, key: int) -> None:
        """UpdateFrequency and EstimateFrequency of Alg. 1, and Def. 3.3."""
        self.so_far += 1
        if key in self.tracked:
            self.tracked[key] += 1
            rows = self.tracked[key]
        else:
            rows = self.counts.add(key)
        if self.hot.get(key) == self.window:
            return
        load = max(max(self.load, self.so_far) * self.hot_share, self.fewest * self.n)
        if rows * self.n >= load and self.heavy < self.n:
            self.heavy += 1
            if key not in self.hot:
                self.becomes_hot(key)
            self.hot[key] = self.window
            if key not in self.tracked:
                self.track(key, rows)

    def track(self, key: int, rows: int) -> None:
        self.tracked[key] = rows
        self.fragments[key].clear()
        self.fragments[key][self.fragment_slide].add(self.homes[key])

    def becomes_hot(self, key: int) -> None:
        pass

    def window_load(self, worker: int) -> int:
        return sum(slide[worker] for slide in self.loads.values())

    def total_load(self) -> int:
        return sum(sum(slide.values()) for slide in self.loads.values())

    def send(self, key: int, worker: int) -> None:
        assert self.slide is not None
        self.loads[self.slide][worker] += 1
        self.fragments[key][self.fragment_slide].add(worker)

    def choose(self, key: int) -> int:
        raise NotImplementedError

    def learn(self, key: int, worker: int) -> None:
        pass

    def assign(self, keys: Sequence[int], times: Sequence[int] | None = None) -> list[int]:
        out = []
        for i, key in enumerate(keys):
            self.turn_windows(times[i] if times is not None else self.row)
            self.observe(key)
            out.append(self.assign_row(key))
        return out

    def assign_row(self, key: int) -> int:
        worker = self.choose(key) if key in self.hot else self.homes[key]
        self.send(key, worker)
        if key in self.hot:
            self.learn(key, worker)
        self.row += 1
        return worker


class PlainDalton(HotKeyPartitioner):
    """Algorithms 1 and 2."""

    def __init__(self, workers: int, homes: Mapping[int, int], *, seed: int = 0, member: int = 0, **rest: object):
        self.epsilon = float(rest.pop("epsilon", 0.1))  # type: ignore[arg-type]
        self.step = float(rest.pop("step", 0.1))  # type: ignore[arg-type]
        self.balance = float(rest.pop("balance", 0.5))  # type: ignore[arg-type]
        super().__init__(workers, homes, **rest)  # type: ignore[arg-type]
        self.seed = (seed + (member + 1) * 0xD1B54A32D192ED03) & MASK
        self.q: dict[int, list[float]] = {}
        self.awaits = False
        self.waiting: list[tuple[int, int, float]] = []
        self.batch = 0

    def becomes_hot(self, key: int) -> None:
        self.q[key] = [-2.0] * self.n

    def choose(self, key: int) -> int:
        bits = finalize((self.seed + self.row * 0x9E3779B97F4A7C15) & MASK)
        if bits >> 32 < int(self.epsilon * 2**32):
            arm = ((bits & 0xFFFFFFFF) * self.n) >> 32
        else:
            arm = max(range(self.n), key=lambda i: (self.q[key][(self.homes[key] + i) % self.n], -i))
        return (self.homes[key] + arm) % self.n

    def learn(self, key: int, worker: int) -> None:
        load, total = self.window_load(worker) * self.n, self.total_load()
        imbalance = (load - total) / max(load, total)  # Eq. 3
        fragmentation = len(self.holders(key)) / self.n  # Eq. 4
        reward = -(self.balance * imbalance + (1.0 - self.balance) * fragmentation)
        if self.awaits:
            self.waiting.append((key, worker, reward))
        else:
            self.apply(key, worker, reward)

    def apply(self, key: int, worker: int, reward: float) -> None:
        self.q[key][worker] += self.step * (reward - self.q[key][worker])  # Eq. 5

    def assign_batch(self, keys: Sequence[int], times: Sequence[int] | None = None) -> list[int]:
        """Section 3.4: see all rows, then assign them; keys are fragmented within the batch."""
        self.fragment_slide, self.fragment_slides = self.batch, 1
        self.end_statistics()
        self.load = len(keys)
        self.batch += 1
        for key in keys:
            self.observe(key)
        out = []
        for i, key in enumerate(keys):
            self.turn_windows(times[i] if times is not None else self.row)
            out.append(self.assign_row(key))
        return out

    def sync(self) -> None:
        """SendSyncMsg: the statistics window is the interval between two of them."""
        self.end_statistics()
        self.awaits = True

    def adopt(self, q: Mapping[int, Sequence[float]], load: int, change: Sequence[int]) -> None:
        self.q = {key: list(values) for key, values in q.items()}
        self.hot = dict.fromkeys(q, self.window)
        for key in q:
            if key not in self.tracked:
                self.track(key, self.counts.estimate(key))
        assert self.slide is not None
        for worker, rows in enumerate(change):
            self.loads[self.slide][worker] += rows
        self.load = load
        for key, worker, reward in self.waiting:
            if key in self.q:
                self.apply(key, worker, reward)
        self.waiting.clear()
        self.awaits = False


class PlainGreedy(HotKeyPartitioner):
    """DAGreedy: the worker that holds the key and is least loaded, each counted by half."""

    def choose(self, key: int) -> int:
        total, holders = self.total_load(), self.holders(key)
        order = [(self.homes[key] + i) % self.n for i in range(self.n)]
        return max(order, key=lambda w: (w in holders) * total - self.window_load(w) * self.n)


def plain_prompt(keys: Sequence[int], workers: int) -> list[int]:
    counts = Counter(keys)
    block = -(-len(keys) // workers)
    cut = max(block // max(len(counts) // workers, 1), 1)
    first_seen = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    order = sorted(counts, key=lambda key: (-counts[key], first_seen[key]))
    frequent = [key for key in order if counts[key] > cut]
    room = [block] * workers
    pieces: dict[int, list[list[int]]] = defaultdict(list)

    def give(key: int, worker: int, rows: int) -> None:
        pieces[key].append([worker, rows])
        room[worker] -= rows

    for i, key in enumerate(frequent):
        give(key, i % workers, cut)
    zigzag = list(range(workers)) + list(range(workers))[::-1]
    for i, key in enumerate(order[len(frequent) :]):
        give(key, zigzag[i % len(zigzag)], counts[key])
    for i, key in enumerate(frequent):
        left = counts[key] - cut
        while left:
            fitting = [w for w in range(workers) if room[w] >= left]
            own = i % workers
            if own in fitting:
                worker = own
            else:
                worker = min(fitting, key=lambda w: room[w]) if fitting else max(range(workers), key=room.__getitem__)
            rows = min(left, max(room[worker], 1))
            give(key, worker, rows)
            left -= rows
    out = []
    for key in keys:
        while pieces[key][0][1] == 0:
            pieces[key].pop(0)
        pieces[key][0][1] -= 1
        out.append(pieces[key][0][0])
    return out
