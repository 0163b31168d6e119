"""Unit: the lint sees files that are written past `state/durable`."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_imports import SOURCE
from check_writes import EXCEPTIONS, check


def messages(tmp_path: Path, module: str, text: str) -> list[str]:
    path = tmp_path / module
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return [violation.message for violation in check(tmp_path)]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("os.fsync(f)", "os.fsync"),
        ("os.replace(a, b)", "os.replace"),
        ("os.rename(a, b)", "os.rename"),
        ("os.open(a, os.O_RDONLY)", "os.open"),
        ("from os import fsync", "os.fsync"),
        ("shutil.rmtree(a, ignore_errors=True)", "shutil.rmtree"),
        ("tempfile.mkdtemp()", "tempfile.mkdtemp"),
        ("path.unlink(missing_ok=True)", "path.unlink"),
        ("(a / b).mkdir()", "(a / b).mkdir"),
        ("path.rename(other)", "path.rename"),
        ("path.replace(other)", "path.replace"),
        ("path.write_bytes(data)", "path.write_bytes"),
        ("path.write_text(data)", "path.write_text"),
        ("path.touch()", "path.touch"),
        ("open(path, 'wb')", "open"),
        ("open(path, mode='a')", "open"),
        ("path.open('r+b')", "path.open"),
        ("open(path, 'x')", "open"),
        ("pa.OSFile(path, 'w')", "pa.OSFile"),
        ("from thalweg.state.disk import OperatingSystem", "thalweg.state.disk"),
        ("from thalweg.state import disk", "thalweg.state.disk"),
    ],
)
def test_a_write_is_found(tmp_path: Path, text: str, part: str) -> None:
    found = messages(tmp_path, "sink/files.py", text)
    assert len(found) == 1
    assert part in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "open(path)",
        "path.open('rb')",
        "pa.OSFile(path)",
        "text.replace('a', 'b')",
        "moment.replace(tzinfo=UTC)",
        "replace(value, name=1)",
        "FilesSink.open(spec, context)",
        "os.stat(path)",
        "os.access(path, os.W_OK)",
        "from thalweg.state.durable import write_atomic",
    ],
)
def test_what_writes_no_file_passes(tmp_path: Path, text: str) -> None:
    assert messages(tmp_path, "sink/files.py", text) == []


@pytest.mark.slow
def test_the_package_keeps_the_rule() -> None:
    assert [str(violation) for violation in check(SOURCE)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_an_exception_is_there_and_needed(tmp_path: Path, name: str) -> None:
    """The same text under another name is found."""
    for path in [SOURCE / name] if name.endswith(".py") else sorted((SOURCE / name).rglob("*.py")):
        messages(tmp_path, f"sink/{path.name}", path.read_text())
    assert check(tmp_path)
