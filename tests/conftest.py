"""Fixtures that every kind of test shares, and the lanes that tests run in."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.lanes import FastLane, sort_into_lanes
from tests.support.object_store import endpoint, new_place  # noqa: F401 - fixtures
from tests.support.profiles import register_profiles
from tests.support.side import ORACLE, Side, Tables

from thalweg.engine.spark import create_session
from thalweg.testing import LocalSession
from thalweg.testing.faults import Death
from thalweg.testing.recorded import Answers

GOLDEN = Path(__file__).with_name("golden")
RECORDED = GOLDEN / "analyser"


register_profiles()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="ask Spark for answers that are not recorded")
    parser.addoption("--remake", action="store_true", help="ask Spark for all answers again and forget the others")
    parser.addoption("--bless", action="store_true", help="write golden files anew instead of comparing")
    parser.addoption("--fast-lane", action="store_true", help="fail for a test above a second of the processor")
    parser.addoption("--rotation", type=int, help="which sample asks Spark again; another one daily")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--remake"):
        if any(config.getoption(name) for name in ("keyword", "markexpr")) or config.args != ["tests"]:
            raise pytest.UsageError("--remake is for all tests at once: answers that are not asked for are forgotten")
        config.option.record = True
    if config.getoption("--fast-lane"):
        config.pluginmanager.register(FastLane(), "fast-lane")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    given = config.getoption("--rotation")
    today = date.today().toordinal() if given is None else given
    rotation = None if config.getoption("--fast-lane") else today
    for item in items:
        sort_into_lanes(item, rotation)


@pytest.fixture(scope="session")
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written anew."""
    return bool(request.config.getoption("--bless"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small Spark for the whole run, set up as the engine's own: starting one takes seconds."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = create_session("local[2]", **{"spark.sql.warehouse.dir": str(warehouse)})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def answers(request: pytest.FixtureRequest) -> Iterator[Answers]:
    """What Spark's analyser said to the queries of the tests."""
    answers = Answers(RECORDED, anew=request.config.getoption("--remake"))
    yield answers
    answers.save()


@pytest.fixture
def local(answers: Answers, request: pytest.FixtureRequest) -> Iterator[Callable[..., LocalSession]]:
    """Makes sessions without Spark, which end with the test; `--record` asks Spark what is not recorded yet."""
    opened: list[LocalSession] = []

    def open_session(*args: Any, **options: Any) -> LocalSession:
        given = {"recorded": answers, "record": request.config.getoption("--record"), **options}
        opened.append(LocalSession(*args, **given))
        return opened[-1]

    yield open_session
    for session in opened:
        with suppress(Death):  # of a storage that died under it
            session.stop()


@pytest.fixture(scope="module")
def recorded_tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    """Spark's answers to the tests of one file."""
    tables = Tables(ORACLE / f"{request.path.stem}.zip", anew=request.config.getoption("--remake"))
    yield tables
    tables.save()


@pytest.fixture(scope="module")
def module_side(answers: Answers, recorded_tables: Tables, request: pytest.FixtureRequest) -> Iterator[Side]:
    """A local side that several tests of a file share."""
    record = request.config.getoption("--record")
    side = Side(answers, recorded_tables, lambda: request.getfixturevalue("spark"), record=record)
    yield side
    side.stop()


@pytest.fixture
def side(answers: Answers, recorded_tables: Tables, request: pytest.FixtureRequest) -> Iterator[Side]:
    """What the test runs on: its own process and recorded answers, or Spark if it is marked `on_spark`."""
    side = Side(
        answers,
        recorded_tables,
        lambda: request.getfixturevalue("spark"),
        on_spark=request.node.get_closest_marker("on_spark") is not None,
        record=request.config.getoption("--record"),
        check=request.node.get_closest_marker("rotating") is not None,
    )
    yield side
    side.stop()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path | str, str], None]:
    """Compares a text with a file below tests/golden; `--bless` writes the file."""

    def compare(path: Path | str, text: str) -> None:
        file, wanted = GOLDEN / path, text.rstrip("\n") + "\n"
        if request.config.getoption("--bless"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(wanted, encoding="utf-8")
            return
        known = file.read_text(encoding="utf-8") if file.exists() else ""
        if known != wanted:
            lines = difflib.unified_diff(known.splitlines(), wanted.splitlines(), f"{path}", "now", lineterm="")
            told = "\n".join(lines)
            pytest.fail(f"{path} is not what it was. If it should be so: pytest --bless\n{told}", pytrace=False)

    return compare


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A state directory that does not exist yet."""
    return tmp_path / "state"
