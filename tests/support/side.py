"""What a test runs on, and what tells it what is right.

Most tests run in their own process and compare with recorded answers of Spark. Some run on Spark, end to end, and ask
it (marker `on_spark`). Of the others a sample, another one every day, asks Spark again (`rotating`): the answer
must be the one that was recorded.

    tests/golden/oracle/<test file>.zip     an Arrow stream for every answer, named by the question and the rows
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as pa_ipc
from tests.support import join_oracle
from tests.support.join_oracle import Emissions, Versions

import thalweg
from thalweg.adapt.settings import EPOCH
from thalweg.errors import result_not_recorded
from thalweg.testing import LocalSession, oracle
from thalweg.testing.compare import difference
from thalweg.testing.oracle import Feed
from thalweg.testing.recorded import Answers, spark_version

ORACLE = Path(__file__).parents[1] / "golden" / "oracle"
_WHEN = (1980, 1, 1, 0, 0, 0)


class Tables:
    """Recorded tables in one file."""

    def __init__(self, path: Path, *, anew: bool = False) -> None:
        """`anew`: as if nothing had been recorded yet, so that all is asked for again."""
        self.path = path
        self._found: dict[str, bytes] = {}
        self._new: set[str] = set()
        if path.exists() and not anew:
            with zipfile.ZipFile(path) as archive:
                self._found = {name: archive.read(name) for name in archive.namelist()}

    def get(self, key: str) -> pa.Table | None:
        data = self._found.get(key)
        return None if data is None else pa_ipc.open_stream(data).read_all()

    def add(self, key: str, table: pa.Table) -> None:
        out, options = io.BytesIO(), pa_ipc.IpcWriteOptions(compression="zstd")
        with pa_ipc.new_stream(out, table.schema, options=options) as writer:
            writer.write_table(table.combine_chunks())
        self._found[key] = out.getvalue()
        self._new.add(key)

    def save(self) -> None:
        if not self._new:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(self._found):
                archive.writestr(zipfile.ZipInfo(name, _WHEN), self._found[name], zipfile.ZIP_DEFLATED)


class CheckedAnswers(Answers):
    """What the analyser said to the questions of a test, each asked again: it must say the same."""

    def __init__(self, recorded: Answers) -> None:
        super().__init__(None)
        self._recorded = recorded

    def add(self, line: dict[str, Any]) -> None:
        known = self._recorded.get(line["key"])
        assert known is not None, f"not recorded yet: {line['asked']}"
        assert json.loads(json.dumps(line)) == known, f"Spark's analyser says something else now to: {line['asked']}"
        super().add(line)


class Side:
    """`spark` makes a Spark session where one is needed; None: there is none to ask."""

    def __init__(
        self,
        answers: Answers,
        tables: Tables,
        spark: Callable[[], Any] | None,
        *,
        on_spark: bool = False,
        record: bool = False,
        check: bool = False,
    ) -> None:
        self.answers = answers
        self.tables = tables
        self.on_spark = on_spark
        self.record = record
        self.check = check
        self._spark = spark
        self._open: list[LocalSession] = []

    def connect(self, state_dir: Path, **options: Any) -> thalweg.Session:
        """A session as `thalweg.connect` opens it, on Spark or here."""
        if self.on_spark:
            return thalweg.connect(state_dir, spark=self.spark, **options)
        given = {"repartition": "4 minutes", "join_epoch": EPOCH, **options}
        checks = self.check and not self.record
        answers = CheckedAnswers(self.answers) if checks else self.answers
        session = LocalSession(state_dir=state_dir, recorded=answers, record=self.record or checks, **given)
        self._open.append(session)
        return session

    def stop(self) -> None:
        """What a failed test has left open."""
        for session in self._open:
            session.stop()

    @property
    def spark(self) -> Any:
        assert self._spark is not None
        return self._spark()

    # -- what is right -----------------------------------------------------------------------------------------

    def expected(self, feed: Feed, select: str, *, since: int = 0) -> pa.Table:
        asked = _Question("expected", (feed,), select, since)
        return self._ask(asked, lambda spark: oracle.expected(spark, feed, select, since=since))

    def expected_emissions(self, feed: Feed, select: str, *, since: int = 0) -> list[tuple[int, pa.Table]]:
        def ask(spark: Any) -> pa.Table:
            found = oracle.expected_emissions(spark, feed, select, since=since)
            tables = [_with(table, {".batch": [batch] * table.num_rows}) for batch, table in found]
            batches = json.dumps([batch for batch, _ in found])
            return pa.concat_tables(tables).replace_schema_metadata({"batches": batches})

        table = self._ask(_Question("expected_emissions", (feed,), select, since), ask)
        of = table.column(".batch")
        plain = table.drop_columns([".batch"]).replace_schema_metadata(None)
        return [(batch, plain.filter(pc.equal(of, batch))) for batch in json.loads(table.schema.metadata[b"batches"])]

    def emissions(self, feeds: Sequence[Feed], select: str, *, tables: Versions | None = None) -> Emissions:
        """Of a join."""
        versions = tables or {}

        def ask(spark: Any) -> pa.Table:
            found = join_oracle.emissions(spark, feeds, select, tables=versions)
            extra = {".batch": found.batches, ".arrived": found.arrived, ".oldest": found.oldest}
            return _with(found.rows, extra).replace_schema_metadata({"windowed": str(found.windowed)})

        table = self._ask(_Question("emissions", tuple(feeds), select, versions), ask)
        extra = [tuple(table.column(name).to_pylist()) for name in (".batch", ".arrived", ".oldest")]
        windowed = table.schema.metadata[b"windowed"] == b"True"
        rows = table.drop_columns([".batch", ".arrived", ".oldest"]).replace_schema_metadata(None)
        return Emissions(rows, extra[0], extra[1], extra[2], windowed)

    def expected_of_joins(self, feeds: Sequence[Feed], select: str) -> pa.Table:
        return self.emissions(feeds, select).through()

    def _ask(self, asked: _Question, ask: Callable[[Any], pa.Table]) -> pa.Table:
        if self.on_spark:
            return ask(self.spark)
        key = asked.key
        known = self.tables.get(key)
        if known is None and not self.record:
            raise result_not_recorded(asked.select, [feed.stream for feed in asked.feeds], self.tables.path)
        if known is None or self.check:
            answer = ask(self.spark)
            message = None if known is None else difference(known, answer)
            assert not message, f"Spark says something else than was recorded:\n{message}"
            if known is None:
                self.tables.add(key, answer)
                known = self.tables.get(key)
        return known


def _with(table: pa.Table, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values, pa.int64()))
    return table


@dataclass(frozen=True)
class _Question:
    kind: str
    feeds: tuple[Feed, ...]
    select: str
    more: Any

    @property
    def key(self) -> str:
        digest = hashlib.blake2b(digest_size=12)
        digest.update(json.dumps([self.kind, spark_version(), self.select]).encode())
        for feed in self.feeds:
            digest.update(json.dumps([feed.stream, feed.time, feed.delay_us]).encode())
            for table in feed.batches:
                digest.update(_bytes(table))
        if isinstance(self.more, Mapping):
            for name, versions in sorted(self.more.items()):
                for since, table in versions:
                    digest.update(f"{name} {since}".encode() + _bytes(table))
        else:
            digest.update(str(self.more).encode())
        return digest.hexdigest()


def _bytes(table: pa.Table) -> bytes:
    """The schema and the values, however they lie in memory."""
    return repr((str(table.schema), table.to_pydict())).encode()
