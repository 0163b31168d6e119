"""How long a sink is waited for, how much may wait for it, how many results are kept: what a query's OPTIONS say."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.model.query import Query

RETAINED = "retain_results"
BYTES, COUNTS, SPANS = ("undelivered_bytes", RETAINED), ("retries",), ("retry_delay", "sink_timeout")
OPTIONS = (*BYTES, *COUNTS, *SPANS)
"""As a stored query has them: whole numbers, spans in microseconds."""


@dataclass(frozen=True)
class Patience:
    undelivered_bytes: int = 1 << 30
    """The most that may wait for the sink."""
    retries: int = 7
    """How often a commit that failed is tried again."""
    retry_delay: int = 250_000
    """Microseconds before the first retry, twice as many before each further one."""
    sink_timeout: int = 60_000_000
    """Microseconds after which a commit that has not returned counts as failing."""

    @classmethod
    def of(cls, query: Query) -> Patience:
        given = dict(query.options)
        return cls(**{name: int(given[name]) for name in OPTIONS if name in given and name != RETAINED})

    def delay(self, failures: int) -> float:
        """Seconds before the next try, after this many failures in a row."""
        return self.retry_delay / 1e6 * 2.0 ** (failures - 1)

    @property
    def timeout(self) -> float:
        """In seconds."""
        return self.sink_timeout / 1e6

    def lasts(self, failures: int) -> float:
        """Seconds after which a commit that does not return is given up: the limit, and all that retries would have
        taken. `failures`: those before it."""
        return self.timeout + sum(self.delay(n) for n in range(failures + 1, self.retries + 1))


def retained(query: Query) -> int | None:
    """Bytes of the newest results that are kept in memory; None: all."""
    given = dict(query.options).get(RETAINED)
    return None if given is None else int(given)
