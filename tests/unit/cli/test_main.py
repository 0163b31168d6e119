"""Unit: the commands, on a real session that shares the tests' Spark."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import thalweg
from thalweg.cli import demo
from thalweg.cli.main import main
from thalweg.errors import UsageError
from thalweg.state.lock import DirectoryLock

STATEMENTS = """
CREATE STREAM events (k STRING, x BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND)
WITH (source = 'files', path = '{path}', format = 'csv');
CREATE QUERY sums AS SELECT k, sum(x) AS total FROM events GROUP BY k, window(ts, '10 seconds');
"""


@pytest.fixture
def statements(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of statements over a small CSV; commands connect through the tests' Spark."""
    (tmp_path / "in").mkdir()
    with open(tmp_path / "in" / "a.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["k", "x", "ts"])
        writer.writerows([["a", 4711, f"2026-01-01T00:00:0{i}Z"] for i in range(3)])
        writer.writerow(["b", 1, "2026-01-01T00:01:00Z"])
    connect = thalweg.connect
    monkeypatch.setattr(thalweg, "connect", lambda state: connect(state, spark=spark))
    path = tmp_path / "events.sql"
    path.write_text(STATEMENTS.format(path=tmp_path / "in" / "*.csv"))
    return path


def thalweg_command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["thalweg", *arguments])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_run_prints_results(
    statements: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert thalweg_command(monkeypatch, "run", str(statements), "--available-now") == 0
    text = capsys.readouterr().out
    assert "sums · 1 rows" in text
    assert "14133" in text


def test_run_goes_on_in_its_state_directory(
    statements: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--state", str(state_dir), "--available-now")
    assert thalweg_command(monkeypatch, "run", str(statements), *arguments) == 0
    assert thalweg_command(monkeypatch, "run", str(statements), *arguments) == 0
    capsys.readouterr()
    assert thalweg_command(monkeypatch, "run", *arguments) == 0
    assert "14133" in capsys.readouterr().out


def test_explain_names_the_query(
    statements: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert thalweg_command(monkeypatch, "explain", str(statements)) == 0
    assert "sums" in capsys.readouterr().out


def contents(root: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None for path in root.rglob("*")
    }


def test_explain_writes_nothing(
    statements: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a sink nor the state directory knows of it, whether that exists or not; a run afterwards works."""
    sink, state = tmp_path / "out", tmp_path / "state"
    filed = f"CREATE QUERY filed INTO files OPTIONS (path = '{sink}') AS SELECT k, x FROM events;"
    statements.write_text(statements.read_text() + filed)
    run = ("run", str(statements), "--state", str(state), "--available-now")
    assert thalweg_command(monkeypatch, "explain", str(statements), "--state", str(state)) == 0
    assert "filed" in capsys.readouterr().out
    assert not sink.exists()
    assert not state.exists()
    assert thalweg_command(monkeypatch, *run) == 0

    before = contents(state), contents(sink)
    changed = tmp_path / "changed.sql"
    changed.write_text(
        f"{statements.read_text()} DROP QUERY sums;"
        f"CREATE QUERY more INTO files OPTIONS (path = '{tmp_path / 'more'}') AS SELECT x FROM events;"
    )
    capsys.readouterr()
    with DirectoryLock(state):  # a pipeline runs there
        held = contents(state)
        assert thalweg_command(monkeypatch, "explain", str(changed), "--state", str(state)) == 0
        assert contents(state) == held
    said = capsys.readouterr().out
    assert "more" in said
    assert "sums" not in said
    assert not (tmp_path / "more").exists()
    assert thalweg_command(monkeypatch, *run) == 0
    assert contents(sink) == before[1]


def test_a_rehearsal_cannot_be_started(statements: Path, state_dir: Path) -> None:
    with thalweg.connect(state_dir) as session:
        session.rehearse()
        session.sql(statements.read_text())
        for run in (session.start, session.run_available):
            with pytest.raises(UsageError, match="only tries statements out"):
                run()


def test_a_directory_of_somebody_else_is_refused_as_it_is(
    statements: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "project" / "tables" / "old").mkdir(parents=True)
    (tmp_path / "project" / "tables" / "customers.csv").write_text("a,b")
    for command in ("run", "explain"):
        assert thalweg_command(monkeypatch, command, str(statements), "--state", str(tmp_path / "project")) == 1
        assert "neither empty nor a state directory" in capsys.readouterr().err
    found = sorted(path.relative_to(tmp_path / "project").as_posix() for path in (tmp_path / "project").rglob("*"))
    assert found == ["tables", "tables/customers.csv", "tables/old"]


def test_mistake_in_sql_is_text_and_exit_code_1(
    statements: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statements.write_text(statements.read_text().replace("sum(x)", "sum(nothing_like_it)"))
    assert thalweg_command(monkeypatch, "run", str(statements), "--available-now") == 1
    error = capsys.readouterr().err
    assert "nothing_like_it" in error
    assert "^^^" in error
    assert "Traceback" not in error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("run", "nowhere.sql"), "nowhere.sql"),
        (("run",), "nothing to run"),
        (("bench", "no-such-bench"), "no-such-bench"),
    ],
)
def test_mistakes_that_need_no_spark(
    arguments: tuple[str, ...], part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert thalweg_command(monkeypatch, *arguments) == 1
    assert part in capsys.readouterr().err


def test_the_version_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert thalweg_command(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"thalweg {thalweg.__version__}\n"


@pytest.mark.parametrize(("given", "explains"), [((), False), (("--explain",), True)])
def test_the_demo_explains_only_when_asked(
    given: tuple[str, ...], explains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[demo.Game] = []
    monkeypatch.setattr(demo, "play", lambda out, session, game, interrupted: played.append(game) or True)
    monkeypatch.setattr("thalweg.cli.main._run_session", lambda state, work: work(None, None))
    assert thalweg_command(monkeypatch, "demo", "--seconds", "5", *given) == 0
    assert played == [demo.Game(seconds=5, explains=explains)]


def test_schedule_of_the_demo_is_consistent() -> None:
    """Every query is created once, dropped only after that, and a dozen are there at some time."""
    alive: set[str] = set()
    most = 0
    for event in demo.SCHEDULE:
        if event.select is None:
            alive.remove(event.name)
        else:
            assert event.name not in alive
            alive.add(event.name)
        most = max(most, len(alive))
    assert set(demo.QUERIES) >= alive
    assert len(demo.QUERIES) >= 12
    assert most >= 10


def test_queries_of_the_demo_are_accepted(spark: SparkSession, state_dir: Path) -> None:
    with thalweg.connect(state_dir, spark=spark) as session:
        assert repr(session) == f"<thalweg session in {state_dir}: idle, 0 streams, 0 queries>"
        demo.create_streams(session, demo.Game())
        for event in demo.SCHEDULE:
            demo.apply(session, event)
        assert set(session.queries) == set(demo.QUERIES) - {"price_range", "ad_reach", "bargains"}
        assert repr(session) == f"<thalweg session in {state_dir}: idle, 2 streams, 12 queries>"
    assert repr(session) == f"<thalweg session in {state_dir}: stopped, 2 streams, 12 queries>"
