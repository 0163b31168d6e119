"""What people write who come from Spark, Flink, Materialize or a database, and what it is called here."""

from __future__ import annotations

_CLOCK = "results depend on event time, never on the clock: compare with the stream's time, or use window(time, ...)"
_CHANCE = "results may not depend on chance: let a column decide, such as userID % 100 < 10"
_LISTS = "there are no arrays yet; count, min_by, max_by, or an aggregate of your own (thalweg.aggregate) may do"
_JSON = "streams have flat columns: take the fields out where the rows are written, or in a streaming DataFrame"
_SESSION = "session windows are not there yet: use window(time, range[, slide])"
_ROWS = "there is no OVER: max_by and min_by give the row of an extreme, ORDER BY ... LIMIT n the first of a window"

_FUNCTIONS = {
    "tumble": "write window(time, '1 minute')",
    "hop": "write window(time, '10 minutes', '1 minute'): first the range, then the slide",
    "cumulate": "write window(time, range, slide), and EMIT UPDATES to see windows before they close",
    "session": _SESSION,
    "session_window": _SESSION,
    "date_bin": "group by window(time, '1 minute'); window.start is the bin",
    "time_bucket": "group by window(time, '1 minute'); window.start is the bucket",
    "tumble_start": "group by window(time, range) and select window.start",
    "tumble_end": "group by window(time, range) and select window.end",
    "hop_start": "group by window(time, range, slide) and select window.start",
    "hop_end": "group by window(time, range, slide) and select window.end",
    "watermark": "the watermark belongs to the stream: WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS",
    **dict.fromkeys(
        (
            "now", "current_timestamp", "current_date", "current_time", "localtimestamp", "localtime", "proctime",
            "curdate", "unix_timestamp", "mz_now", "getdate", "sysdate",
        ),
        _CLOCK,
    ),
    **dict.fromkeys(("rand", "random", "randn", "uuid", "gen_random_uuid", "shuffle", "uniform"), _CHANCE),
    **dict.fromkeys(
        ("collect_list", "collect_set", "array_agg", "listagg", "string_agg", "list_agg", "group_concat"), _LISTS
    ),
    **dict.fromkeys(("explode", "explode_outer", "posexplode", "unnest", "flatten"), _LISTS),
    **dict.fromkeys(
        ("get_json_object", "json_tuple", "from_json", "json_value", "json_query", "parse_json", "to_json"), _JSON
    ),
    **dict.fromkeys(("row_number", "rank", "dense_rank", "lag", "lead", "ntile"), _ROWS),
    "to_timestamp": "declare the column as timestamp in the stream's columns: text of ISO-8601 is read as that; for "
    "numbers there are timestamp_seconds and timestamp_millis",
    "approx_percentile": "percentile(x, 0.95) is exact, and merged from counts",
    "percentile_approx": "percentile(x, 0.95) is exact, and merged from counts",
    "grouping": "create one query per grouping",
}  # fmt: skip
"""By the name of a function that there is not."""

_QUERY = "a SELECT that goes on is a query here: CREATE QUERY name [INTO sink OPTIONS (...)] AS SELECT ..."
_STREAM = "rows that keep coming are a stream here: CREATE STREAM name (...) WITH (source = 'files', path = '...')"
_INSERT = "CREATE QUERY name INTO files OPTIONS (path = '...', format = 'parquet') AS SELECT ..."
_CHANGE = "CREATE OR REPLACE QUERY name ...: it begins anew, and sees rows from then on"
_SETTING = "settings are given in Python: thalweg.connect(directory, ...)"

_STATEMENTS = {
    **{f"create {what}": _QUERY for what in ("materialized", "view", "temporary", "temp", "continuous", "live")},
    **{f"create or replace {what}": _QUERY for what in ("view", "materialized", "temporary", "temp")},
    "create source": _STREAM,
    "create connection": _STREAM,
    "create external": _STREAM,
    "create sink": f"a sink belongs to its query: {_INSERT}",
    "create function": "functions of one row are not there yet; aggregates: thalweg.aggregate(name, ...) in Python",
    "create index": "state is indexed by what the queries need, without being asked",
    "drop view": "a SELECT that goes on is a query here: DROP QUERY name",
    "drop materialized": "a SELECT that goes on is a query here: DROP QUERY name",
    "drop source": "DROP STREAM name",
    "drop sink": "a sink ends with its query: DROP QUERY name",
    "insert": _INSERT,
    "copy": _INSERT,
    "subscribe": "query.results() in Python, or CREATE QUERY name INTO console AS SELECT ...",
    "alter": _CHANGE,
    "update": "rows of streams do not change; a static table is read anew by CREATE OR REPLACE TABLE",
    "delete": "rows of streams do not change; a static table is read anew by CREATE OR REPLACE TABLE",
    "show columns": "DESCRIBE name",
    "show views": "a SELECT that goes on is a query here: SHOW QUERIES",
    "show materialized": "a SELECT that goes on is a query here: SHOW QUERIES",
    "show jobs": "SHOW QUERIES",
    "show sources": "SHOW STREAMS",
    "show sinks": "SHOW QUERIES tells where results go",
    "set": _SETTING,
    "use": "there is one catalog, of this state directory",
    "begin": "there are no transactions: every batch is exactly once by itself",
    "start": "session.start() in Python, or thalweg run FILE.sql",
    "stop": "PAUSE QUERY name keeps its results back, DROP QUERY name ends it; session.stop() ends the pipeline",
    "execute": "give the statements one after another, with ; between them: they are accepted together or not at all",
    "pause": "PAUSE QUERY name",
    "resume": "RESUME QUERY name",
    "alter stream": "ALTER STREAM name SET (watermark = '10 seconds', ...), or ALTER STREAM name RESET WATERMARK",
    "explain select": "CREATE QUERY name AS SELECT ..., then EXPLAIN name; thalweg explain FILE.sql runs nothing",
}
"""By the words that a statement begins with."""


def function_hint(name: str) -> str | None:
    return _FUNCTIONS.get(name.lower())


def statement_hint(words: list[str]) -> str | None:
    """`words`: the first of a statement, in lower case. The longest beginning that is known counts."""
    beginnings = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    return next((_STATEMENTS[begun] for begun in beginnings if begun in _STATEMENTS), None)
