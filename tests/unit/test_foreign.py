"""Unit: text that others wrote is shown as text, and kept without its secrets."""

from __future__ import annotations

import time

import pytest

from thalweg.errors import SqlError, ThalwegError, failed_callback, failed_sink
from thalweg.foreign import (
    MOST_CHARACTERS,
    brief,
    is_secret,
    plain_lines,
    plain_text,
    redact,
    redact_in_place,
    said_by,
)
from thalweg.model.query import SinkSpec
from thalweg.sink.spark import to_spark

SECRETS = [
    "postgresql://bob:hunter2@db/x",
    "postgresql://bob:hunter2/with@signs@db/x",
    "connection failed: host=db user=bob password=hunter2 dbname=x",
    "jdbc:mysql://db/x?user=bob&password=hunter2&useSSL=true",
    "jdbc:oracle:thin:bob/hunter2@db:1521",
    "bob:hunter2@tcp(db:3306)/x",
    "Server=db;User=bob;Pwd=hunter2;",
    "{'password': 'hunter2', 'user': 'bob'}",
    '{"api_key": "hunter2"}',
    "OPTIONS (user = 'bob', password = 'hunter2')",
    "OPTIONS (password = 'hunter2''s')",
    "kafka.ssl.truststore.password=hunter2",
    """sasl.jaas.config=org.Plain required username="bob" password="hunter2";""",
    "Authorization: Bearer hunter2",
    "401 for Bearer hunter2.hunter2",
    "DefaultEndpointsProtocol=https;AccountKey=hunter2==;",
    "fs.s3a.secret.key=hunter2",
    "invalid token: hunter2",
]


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_taken_out(text: str) -> None:
    assert "hunter2" not in redact(text)
    assert "***" in redact(text)
    assert "hunter2" not in redact_in_place(text)
    assert len(redact_in_place(text)) == len(text)


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmN",
        "ghp_0123456789abcdefghijABCDEFGHIJ",
    ],
)
def test_keys_are_known_by_their_looks(secret: str) -> None:
    assert redact(f"denied for {secret}, again") == "denied for ***, again"


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:8080/a@b",
        "s3://bucket/prefix",
        "sink spark: option 'password' is missing",
        "0123456789abcdef0123456789abcdef01234567",
        "/home/someone/Work1/things/of/all/Kinds/a1",
        "syntax error at or near ';'",
        "2026-01-01 00:00:00: x@y",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_redaction_takes_no_time_even_of_long_texts() -> None:
    for piece in ("password", "://a:", "a1B/", "password='", "bearer ", "eyJaaaaaaaa.", ":thin:a/"):
        began = time.process_time()
        redact(piece * (100_000 // len(piece)))
        assert time.process_time() - began < 1


def test_what_a_terminal_would_obey_is_text() -> None:
    assert plain_text("a\x1b[2Jb\rc\nd\te") == r"a\x1b[2Jb\rc\nd\te"
    assert plain_text("\x9b31m\u202eevil\u2066\u2028\ud800\x7f") == r"\x9b31m\u202eevil\u2066\u2028\ud800\x7f"
    assert plain_text("Zoë ☕ 日本 [red]") == "Zoë ☕ 日本 [red]"
    assert plain_lines("a\n\x1bb") == "a\n\\x1bb"


def test_of_an_exception_its_type_and_first_line_are_kept() -> None:
    assert said_by(OSError("first\nsecond")) == "OSError: first"
    assert said_by(ValueError()) == "ValueError"
    assert said_by(ValueError("\n\n  \n")) == "ValueError"
    assert len(said_by(ValueError("x" * 10_000_000))) == MOST_CHARACTERS
    assert "hunter2" not in said_by(RuntimeError("x" * 280 + " password=hunter2"))
    assert brief("\n  a \n b") == "a"

    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert said_by(OddError()) == "OddError"


def test_errors_hold_neither_secrets_nor_control_characters() -> None:
    error = failed_callback("q", 3, OSError("no route to postgresql://bob:hunter2@db/x\n" + "trace " * 1000))
    assert "postgresql://bob:***@db/x" in str(error)
    assert "trace" not in str(error)
    assert len(str(failed_sink("q", "jdbc", "\x1b[2J" + "x" * 5000))) < 1000
    assert "\x1b" not in str(ThalwegError("\x1b[2J", detail="\x1b", hint="\x1b"))


def test_the_place_in_the_sql_shows_no_secret() -> None:
    sql = "CREATE QUERY q INTO spark OPTIONS (password = 'hunter2') AS SELECT nope FROM s"
    at = sql.index("nope")
    lines = str(SqlError("no column nope", sql=sql, span=(at, at + 4))).splitlines()
    assert "hunter2" not in lines[1]
    assert lines[2].index("^") == lines[1].index("nope")


def test_a_spec_does_not_say_its_secrets() -> None:
    spec = to_spark("jdbc", url="jdbc:x://u:hunter2@h", password="hunter2", dbtable="t")
    assert "hunter2" not in repr(spec)
    assert "dbtable='t'" in repr(spec)
    assert repr(SinkSpec()) == "SinkSpec(memory)"
    for name in ("password", "kafka.sasl.jaas.config", "fs.s3a.secret.key", "authToken", "AWS_SECRET_ACCESS_KEY"):
        assert is_secret(name)
    for name in ("path", "url", "topic", "key.column", "primaryKey"):
        assert not is_secret(name)
