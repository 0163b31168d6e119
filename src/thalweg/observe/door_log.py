"""What is said of input that was not let in: one line in the log `thalweg.source`, once for each stream and kind of
reason in the life of a session. The counters of `progress()` have all of it, and `rejected()` the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from thalweg.model.manifest import StreamProgress
from thalweg.model.report import Lacking, SetAside
from thalweg.model.window import BEGINNING
from thalweg.observe import log
from thalweg.observe.progress import as_time


class DoorLog:
    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def tell(self, batch: int, set_aside: Iterable[SetAside], lacking: Iterable[Lacking]) -> None:
        for aside in set_aside:
            if self._is_new(aside.stream, aside.kind):
                log.warning(
                    "source", "set_aside", stream=aside.stream, batch=batch, kind=aside.kind, rows=aside.rows,
                    file=aside.file, reason=aside.reason,
                )  # fmt: skip
        for file in lacking:  # once of each file
            log.warning(
                "source",
                "columns_missing",
                stream=file.stream,
                batch=batch,
                file=file.file,
                columns=file.columns,
            )

    def tell_resets(self, batch: int, streams: Mapping[str, StreamProgress]) -> None:
        for name, progress in sorted(streams.items()):
            if progress.reset is not None and progress.reset.batch == batch:
                us = progress.reset.closed_us
                closed = None if us <= BEGINNING else as_time(us).isoformat()
                # Windows up to there may be given once more, of rows from this batch on.
                log.warning("source", "watermark_reset", stream=name, batch=batch, had_closed_up_to=closed)

    def _is_new(self, stream: str, kind: str) -> bool:
        known = (stream, kind) in self._told
        self._told.add((stream, kind))
        return not known
