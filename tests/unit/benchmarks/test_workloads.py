"""The bench's generators: the same rows every time, as many as they say, with the keys and skews of the papers."""

from __future__ import annotations

import re
from collections import Counter
from statistics import mean

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmarks.workloads import Workload, ajoin, clash, cluster, game, make_files, named, taxi, tpch, words

WORKS = ("clash/adaptive", "clash/20", "game/8", "ajoin-20@25", "ajoin-20@75x3", "gcm", "debs", "words", "words/zipf")


@pytest.mark.parametrize("name", WORKS)
def test_files_are_a_function_of_their_number(name: str) -> None:
    for one, other in zip(named(name).streams, named(name).streams, strict=True):
        assert one.make(1).equals(other.make(1))
        assert not one.make(1).equals(one.make(2))


@pytest.mark.parametrize("name", WORKS)
def test_files_have_the_schema_and_the_rows_that_are_told(name: str) -> None:
    work = named(name)
    assert work.name == name
    for stream in work.streams:
        table = stream.make(0)
        assert table.schema.equals(stream.schema)
        assert table.num_rows == work.rows_per_file


@pytest.mark.parametrize("name", WORKS)
def test_event_times_rise_from_file_to_file_alike_in_all_streams(name: str) -> None:
    spans = set()
    for stream in named(name).streams:
        first, second = (pc.min_max(stream.make(number)[stream.time]) for number in (0, 1))
        assert first["max"].as_py() < second["min"].as_py()
        spans.add((first["min"].as_py(), first["max"].as_py(), second["max"].as_py()))
    assert len(spans) == 1


@pytest.mark.parametrize("name", [*WORKS, "game/1", "facts/8", "interval", "nway-3", "tpch/q6", "tpch/4"])
def test_every_stream_is_read_by_some_query(name: str) -> None:
    """One that is not would count where files are counted, and not where rows are."""
    work = named(name)
    words = {word for query in work.queries for word in re.findall(r"\w+", query.text)}
    assert {stream.name for stream in work.streams} <= words


@pytest.mark.parametrize("name", WORKS)
def test_queries_have_names_of_their_own_and_a_text_for_a_batch(name: str) -> None:
    queries = named(name).queries
    assert len({query.name for query in queries}) == len(queries)
    assert all(query.batch for query in queries)


@pytest.mark.parametrize("name", ["clash", "clash/adaptive@", "game/0", "game/65", "ajoin-5@101", "gcm/x", "tpch/q2"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ValueError, match="no workload"):
        named(name)


def column(work: Workload, stream: int, name: str, files: int) -> np.ndarray:
    made = (work.streams[stream].make(number) for number in range(files))
    return pa.concat_tables(made)[name].to_numpy()


def top_share(values: np.ndarray) -> float:
    return max(Counter(values.tolist()).values()) / len(values)


# -- CLASH -------------------------------------------------------------------------------------------------


def partners(work: Workload, left: int, right: int, by: str, number: int) -> float:
    """Of a row, were all rows of a file within the window; as many times more as the window is longer than a file."""
    one, other = work.streams[left], work.streams[right]
    a = Counter(one.make(number)[f"{one.name}_{by}"].to_pylist())
    b = Counter(other.make(number)[f"{other.name}_{by}"].to_pylist())
    pairs = sum(n * b[key] for key, n in a.items())
    reach = 2 * clash.WITHIN_SECONDS * clash.ROWS_PER_SECOND / clash.ROWS_PER_FILE
    return pairs / clash.ROWS_PER_FILE * reach


def test_partners_move_to_other_edges_at_the_file_that_is_told() -> None:
    work = named("clash/adaptive@3")
    for number, told in ((2, clash.BEFORE), (3, clash.AFTER)):
        assert partners(work, 0, 1, "a", number) == pytest.approx(told["a"], rel=0.2)
        assert partners(work, 1, 2, "b", number) == pytest.approx(told["b"], abs=0.15)
        assert partners(work, 2, 3, "c", number) == pytest.approx(told["c"], rel=0.2)


def test_the_change_is_at_file_24_or_never() -> None:
    usual, never = named("clash/adaptive").streams[0], named("clash/adaptive@never").streams[0]
    assert usual.make(23).equals(never.make(23))
    assert not usual.make(24).equals(never.make(24))


def test_random_joins_are_trees_of_the_size_that_is_asked() -> None:
    for size in (2, 3, 4, 5):
        work = named(f"clash/12x{size}")
        assert {query.text.count(" JOIN ") for query in work.queries} == {size - 1}
    # Two pairs of three streams have one in common: Spark can always say it.
    assert all(query.spark for query in named("clash/30").queries)


# -- AJoin -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [2, 3, 4, 5])
@pytest.mark.parametrize("percent", [0, 25, 50, 75, 100])
def test_queries_are_as_similar_as_asked_in_the_mean(streams: int, percent: int) -> None:
    made = ajoin.templates(200, percent / 100, streams)
    assert mean(ajoin.similarity(t.places) for t in made) == pytest.approx(percent / 100, abs=0.03)
    assert {len(t.places) for t in made} == {streams}


def test_similarity_of_the_papers_example() -> None:
    """AJoin: one attribute of A |><| B in common with the pattern is 2 * 1 / 2^2."""
    assert ajoin.similarity((ajoin.Place("r", None, "a0"), ajoin.Place("s", "a3", None))) == 0.5
    assert ajoin.similarity(ajoin.pattern(2)) == 1.0


def test_windows_of_the_template_are_one_to_three_seconds_and_every_stream_is_selected_from() -> None:
    made = ajoin.templates(100, 0.5, 3)
    assert {t.seconds for t in made} == {1, 2, 3}
    assert {selection.operator for t in made for selection in t.selections} == {"=", ">", "<", ">=", "<="}
    assert all(len(t.selections) == 3 for t in made)


# -- the game ----------------------------------------------------------------------------------------------


def test_players_buy_mostly_one_pack() -> None:
    table = named("game/1").streams[0].make(0)
    own = game.own_packs()[table["userID"].to_numpy()]
    faithful = float((table["gemPackID"].to_numpy() == own).mean())
    assert faithful == pytest.approx(game.FAITHFUL, abs=0.01)
    assert top_share(game.own_packs()) == pytest.approx(0.147, abs=0.01)


def test_the_first_two_queries_are_those_of_the_listing() -> None:
    total, offered = named("game/2").queries
    assert "sum(price)" in total.text
    assert "GROUP BY gemPackID, window" in total.text
    assert "p.userID = a.userID AND p.gemPackID = a.gemPackID" in offered.text


# -- likenesses --------------------------------------------------------------------------------------------


def test_the_cluster_has_four_classes_and_jobs_that_hardly_come_again() -> None:
    work = named("gcm")
    assert set(column(work, 0, "class", 1).tolist()) == {0, 1, 2, 3}
    jobs = Counter(column(work, 0, "job", 4).tolist())
    assert 4 * cluster.ROWS_PER_FILE / len(jobs) < 4
    assert column(work, 0, "job", cluster.JOBS_FILES).max() == pytest.approx(670_000, rel=0.01)


def test_trips_have_62500_areas_of_which_few_are_busy() -> None:
    pickup = column(named("debs"), 0, "pickup", 4)
    assert pickup.min() >= 0
    assert pickup.max() < taxi.SIDE**2 == 62_500
    shares = np.sort(np.bincount(pickup, minlength=taxi.SIDE**2))[::-1].cumsum() / len(pickup)
    assert shares[len(shares) // 20] > 0.5


TABLE_2 = [("words", 200_000, 0.072), ("words/t4sa", 450_000, 0.0269), ("words/zipf", 100_000, 0.3845)]
"""Dalton: different keys, and the share of the most frequent one."""


@pytest.mark.parametrize(("name", "keys", "share"), TABLE_2)
def test_words_have_the_keys_and_the_top_share_of_daltons_table(name: str, keys: int, share: float) -> None:
    assert words.distribution(name).keys == keys
    tags = [text[: words.TAG] for text in named(name).streams[0].make(0)["text"].to_pylist()]
    assert top_share(np.array(tags)) == pytest.approx(share, rel=0.05)


def test_uniform_words_are_alike() -> None:
    tags = [text[: words.TAG] for text in named("words/uniform").streams[0].make(0)["text"].to_pylist()]
    assert top_share(np.array(tags)) < 0.0002


# -- TPC-H -------------------------------------------------------------------------------------------------


def test_tpch_reads_only_the_streams_and_tables_of_its_queries() -> None:
    assert [stream.name for stream in named("tpch/q6").streams] == ["lineitem"]
    assert [stream.name for stream in named("tpch/q12").streams] == ["orders", "lineitem"]
    assert {static.name for static in named("tpch/all").statics} == {"nation", "region", "supplier", "part"}
    assert len(named("tpch/all@0.1").queries) == 8
    assert named("tpch/q3@0.1").data == named("tpch/q14@0.1").data != named("tpch/q3").data


def test_tpch_rows_lie_in_the_file_of_their_day(tmp_path) -> None:
    if reason := tpch.missing():
        pytest.skip(reason)
    work = named("tpch/all@0.01")
    make_files(work, 2, tmp_path)
    for stream in work.streams:
        table = stream.make(1)
        assert table.schema.equals(stream.schema)
        times = table[stream.time].cast(pa.int64()).to_numpy() - tpch.START_US
        assert times.min() >= 30_000_000
        assert times.max() < 60_000_000
        assert (np.diff(times) >= 0).all()
