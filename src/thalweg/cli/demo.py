"""The demo: a mobile game sells gem packs (SASPAR, Listing 1) and a dozen people ask about it at once.

Purchases and ads arrive in real time. Queries come and go while they run, as they would in a company; at the
end the session says what they shared.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

import thalweg
from thalweg.cli import show
from thalweg.cli.interrupt import Interrupt
from thalweg.cli.watch import Draw, drawing
from thalweg.foreign import plain_lines
from thalweg.observe.session_progress import SessionProgress

_TICK_SECONDS = 0.25
_PATIENCE_SECONDS = 120.0
_LEADERS = "top_packs"


@dataclass(frozen=True)
class Game:
    """How much of the game is played."""

    seconds: int = 30
    rows_per_second: int = 100_000
    seed: int = 7
    explains: bool = False
    """Whether it ends with all of EXPLAIN."""


@dataclass(frozen=True)
class Event:
    """A query is created (with its SELECT) or dropped (without) at a fraction of the game."""

    at: float
    name: str
    select: str | None = None


_PER_PACK = "window.end AS until FROM purchases GROUP BY gemPackID, window(ts, '10 seconds', '2 seconds')"

QUERIES: dict[str, str] = {
    "revenue_per_pack": f"SELECT gemPackID, sum(price) AS revenue, count(*) AS sold, {_PER_PACK}",
    "price_range": f"SELECT gemPackID, min(price) AS least, max(price) AS most, {_PER_PACK}",
    "buyers": f"SELECT gemPackID, approx_count_distinct(userID) AS buyers, {_PER_PACK}",
    _LEADERS: """SELECT gemPackID, sum(price) AS revenue, window.end AS until
        FROM purchases GROUP BY gemPackID, window(ts, '4 seconds') ORDER BY revenue DESC LIMIT 3""",
    "revenue": """SELECT sum(price) AS revenue, count(*) AS sold, avg(price) AS average, window.end AS until
        FROM purchases GROUP BY window(ts, '2 seconds')""",
    "whales": """SELECT userID, sum(price) AS spent, count(*) AS bought, window.end AS until
        FROM purchases GROUP BY userID, window(ts, '4 seconds') HAVING sum(price) > 20000""",
    "jackpots": "SELECT userID, gemPackID, price, ts FROM purchases WHERE price > 100.9 AND userID < 100",
    "ads_per_pack": """SELECT gemPackID, count(*) AS shown, window.end AS until
        FROM ads GROUP BY gemPackID, window(ts, '10 seconds', '2 seconds')""",
    "ad_reach": """SELECT gemPackID, approx_count_distinct(userID) AS users, window.end AS until
        FROM ads WHERE gemPackID < 50 GROUP BY gemPackID, window(ts, '4 seconds')""",
    "bought_after_ad": """SELECT p.gemPackID, count(*) AS bought, sum(p.price) AS revenue, window.end AS until
        FROM purchases p JOIN ads a ON p.userID = a.userID AND p.gemPackID = a.gemPackID
            AND p.ts BETWEEN a.ts AND a.ts + INTERVAL 2 SECONDS
        GROUP BY p.gemPackID, window(p.ts, '4 seconds')""",
    "convinced": """SELECT p.userID, p.gemPackID, p.price, a.ts AS shown, p.ts AS bought
        FROM purchases p JOIN ads a ON p.userID = a.userID AND p.gemPackID = a.gemPackID WITHIN 1 SECOND
        WHERE p.price > 100 AND p.userID < 1000""",
    "bargains": """SELECT gemPackID, count(*) FILTER (WHERE price < 10) AS cheap, count(*) AS sold
        FROM purchases GROUP BY gemPackID, window(ts, '4 seconds')""",
    "typical_price": """SELECT median(price) AS median, stddev(price) AS spread, window.end AS until
        FROM purchases WHERE gemPackID < 100 GROUP BY window(ts, '2 seconds')""",
    "best_buy": """SELECT userID % 10 AS region, max_by(gemPackID, price) AS pack, max(price) AS price
        FROM purchases GROUP BY userID % 10, window(ts, '4 seconds')""",
    "ads_per_region": """SELECT userID % 10 AS region, count(*) AS shown, window.end AS until
        FROM ads GROUP BY userID % 10, window(ts, '2 seconds')""",
}

_LATER = {"bargains": 0.25, "convinced": 0.3, "typical_price": 0.25, "ads_per_region": 0.45, "best_buy": 0.6}
_DROPPED = {"price_range": 0.4, "ad_reach": 0.5, "bargains": 0.75}

SCHEDULE: tuple[Event, ...] = tuple(
    sorted(
        [Event(_LATER.get(name, 0.0), name, select) for name, select in QUERIES.items()]
        + [Event(at, name) for name, at in _DROPPED.items()],
        key=lambda event: event.at,
    )
)


def play(console: Console, session: thalweg.Session, game: Game, interrupt: Interrupt) -> bool:
    """Runs the game for its time and then says what was shared. False if an interrupt has ended it before."""
    create_streams(session, game)
    waiting = deque(SCHEDULE)
    notes = make_changes(session, waiting, 0.0)
    with interrupt.heeded():
        session.start(trigger="1 second")
        with drawing(console, session) as draw:
            wait_for_first_rows(session, draw, interrupt)
            started = time.monotonic()
            while (elapsed := time.monotonic() - started) < game.seconds and not interrupt.pressed:
                made = make_changes(session, waiting, elapsed / game.seconds)
                notes += [f"{elapsed:5.1f} s  {note}" for note in made]
                draw(notes)
                interrupt.wait(_TICK_SECONDS)
        if interrupt.pressed:
            return False
    changes = [event for event in SCHEDULE if event not in waiting]
    summarise(console, session, game, changes, time.monotonic() - started)
    return True


def create_streams(session: thalweg.Session, game: Game) -> None:
    """Two streams whose event time is real time; a user buys few different packs."""
    for name, rate in (("purchases", game.rows_per_second), ("ads", game.rows_per_second // 2)):
        source = thalweg.generate(
            name,
            rows_per_second=rate,
            pace=rate,
            rows_per_batch=10 * rate,
            packs_per_user=5,
            zipf=0.6,
            out_of_order=1.0,
            seed=game.seed,
        )
        session.create_stream(name, source, time="ts", watermark="2 seconds")


def wait_for_first_rows(session: thalweg.Session, draw: Draw, interrupt: Interrupt) -> None:
    """The first batch also starts Spark's workers; the game's time begins after it."""
    patience = time.monotonic() + _PATIENCE_SECONDS
    while session.snapshot().rows == 0 and time.monotonic() < patience and not interrupt.pressed:
        draw(("the first batch starts Spark's workers",))
        interrupt.wait(_TICK_SECONDS)


def make_changes(session: thalweg.Session, waiting: deque[Event], over: float) -> list[str]:
    """Makes the changes that are due when so much of the game is over, and says which."""
    made = []
    while waiting and waiting[0].at <= over:
        made.append(apply(session, waiting.popleft()))
    return made


def apply(session: thalweg.Session, event: Event) -> str:
    if event.select is None:
        session.query(event.name).drop()
        return f"dropped query {event.name}"
    session.sql(f"CREATE QUERY {event.name} AS {event.select}")
    return f"created query {event.name}"


def summarise(console: Console, session: thalweg.Session, game: Game, made: Sequence[Event], seconds: float) -> None:
    state, explained = session.snapshot(), session.explain()
    console.print(show.progress(state))
    leaders = session.query(_LEADERS).results()
    if leaders.num_rows:
        last = leaders.slice(max(0, leaders.num_rows - 6))
        console.print(show.arrow(f"{_LEADERS}: the last windows", last))
    if game.explains:
        console.print(plain_lines(explained), markup=False, highlight=False, soft_wrap=True)
    console.print("What you have seen", style="bold")
    for line in summary(state, game, made, seconds, explained.partition("\n")[0]):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def summary(state: SessionProgress, game: Game, made: Sequence[Event], seconds: float, shared: str) -> list[str]:
    """`made`: changes; `shared`: the first line of EXPLAIN."""
    dropped = sum(event.select is None for event in made)
    rate = game.rows_per_second + game.rows_per_second // 2
    late = sum(stream.late for stream in state.streams.values())
    lines = [
        f"{state.rows:,} rows in {seconds:.0f} s and {state.batch + 1} batches. A generator made {rate:,} a second "
        "(--rows-per-second sets that): it says nothing of how many there could be. docs/benchmarks.md does.",
        f"{len(made) - dropped} queries were created and {dropped} dropped. The others ran on: no restart.",
        f"In the end: {shared} Each of them alone would have read and grouped its rows again.",
        f"{late:,} rows were late: they came after their windows had closed, were left out and counted.",
    ]
    return lines if game.explains else [*lines, "What is shared, query by query: thalweg demo --explain"]
