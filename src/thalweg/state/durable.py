"""Writing files so that after a crash each is there whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from thalweg.errors import corrupt_file, missing_file, unusable_directory

TEMPORARY_SUFFIX = ".tmp"


def temporary_name(path: Path) -> Path:
    """A name beside `path` that no reader looks at and no other writer has chosen."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")


def is_temporary(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(TEMPORARY_SUFFIX)


def make_directory(path: Path) -> Path:
    """Create `path` and its parents, durably."""
    if path.is_dir():
        return path
    try:
        path.mkdir(parents=True, exist_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise unusable_directory(path, error) from error
    return path


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: a rename is not until its directory is synced."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(temporary: Path, path: Path, sync: bool = True) -> None:
    """Give a finished, synced temporary file its name."""
    os.replace(temporary, path)
    if sync:
        sync_directory(path.parent)


def write_atomic(path: Path, data: bytes | memoryview, sync: bool = True) -> None:
    """Replace `path` by `data`: temporary file, fsync, rename, fsync of the directory."""
    temporary = temporary_name(path)
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        publish(temporary, path, sync)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise missing_file(path) from error


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, separators=(",", ":")).encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path))
    except ValueError as error:
        raise corrupt_file(path, "JSON", str(error)) from error
