"""Starting the JVM under a Spark session of Thalweg's own, without what it says in every session.

Two texts come whatever happens, and no setting keeps them back:

- Spark asks the JVM for a module that the JVM warns of before it reads any setting.
- Spark ends idle Python workers by closing their connections. PySpark's worker takes that for an error, finds nobody
  to report it to, and prints so. Those that run our tasks end quietly (`engine/daemon`); Spark's own, which look up
  and plan data sources, cannot be told.

So the JVM writes its errors into a pipe, and a thread passes them on to where they would have gone: all but these.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from thalweg.errors import java_failed, java_missing

_STANDARD_ERROR = 2
_LOCK = threading.Lock()
_WARNING = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
_TRACE = b"Traceback (most recent call last):\n"
_FRAME = re.compile(rb'  File "[^"]*pyspark/daemon\.py", line \d+, in (manager|worker)\n')
_FILE = b'  File "'
_CODE = b"    "
_BROKEN = b"BrokenPipeError: [Errno 32] Broken pipe\n"


def launch_jvm(settings: Mapping[str, Any]) -> None:
    """Starts the JVM that the next SparkContext uses. Does nothing where there is one already."""
    with _LOCK:
        if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
            return
        java = find_java(os.environ)
        conf = SparkConf()
        for name, value in settings.items():
            conf.set(name, str(value))
        reading, writing = os.pipe()
        threading.Thread(
            target=pass_on, args=(reading, _STANDARD_ERROR), name="thalweg-jvm-errors", daemon=True
        ).start()
        try:
            gateway = launch_gateway(conf, {"stderr": writing})
        except PySparkRuntimeError:
            raise java_failed(java, _version_of(java)) from None
        finally:
            os.close(writing)
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def find_java(environment: Mapping[str, str]) -> str:
    """The program that Spark will start, found as its scripts do."""
    home = environment.get("JAVA_HOME")
    if home:
        java = os.path.join(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise java_missing(f"JAVA_HOME is {home}, and there is no {java}")
        return java
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise java_missing("JAVA_HOME is not set, and no directory of PATH has a program java")
    return found


def _version_of(java: str) -> str:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return (said.stderr or said.stdout).partition("\n")[0]


def pass_on(reading: int, to: int) -> None:
    """Copies from one descriptor to the other until the first is closed, and leaves the usual texts out."""
    sieve = Sieve()
    while data := os.read(reading, 65536):
        _write(to, sieve.pass_through(data))
    os.close(reading)


def _write(to: int, data: bytes) -> None:
    """What cannot be written is dropped: a JVM that nobody listens to must not wait for a reader."""
    with suppress(OSError):
        while data:
            data = data[os.write(to, data) :]


class Sieve:
    """Holds lines back as long as they may become one of the usual texts, and gives all others on at once.

    Several workers may be closed at the same time and their lines be mixed: so lines are counted, not their order. A
    trace that ends too early is of a worker that was killed while it printed: it is held for good.
    """

    def __init__(self) -> None:
        self._begun = b""
        """A line without its end."""
        self._held: list[bytes] = []

    def pass_through(self, data: bytes) -> bytes:
        """What may be passed on, now that this has come."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        passed = b"".join(self._pass_line(line + b"\n") for line in lines)
        if not self._may_be_usual(self._begun):
            passed, self._begun = passed + self._release() + self._begun, b""
        return passed

    def _pass_line(self, line: bytes) -> bytes:
        if line == _WARNING:
            return b""
        if not self._is_usual(line):
            return self._release() + line
        self._held.append(line)
        if self._held.count(_BROKEN) == self._held.count(_TRACE) == sum(map(_is_frame, self._held)) / 2:
            self._held = []
        return b""

    def _is_usual(self, line: bytes) -> bool:
        """Whether it is part of the trace of a closed worker: its first line, or a further one."""
        return line == _TRACE or (bool(self._held) and (_is_frame(line) or line == _BROKEN or line.startswith(_CODE)))

    def _may_be_usual(self, begun: bytes) -> bool:
        beginnings = (_WARNING, _TRACE, *((_FILE, _CODE, _BROKEN) if self._held else ()))
        return any(whole.startswith(begun) or begun.startswith(whole) for whole in beginnings)

    def _release(self) -> bytes:
        held, self._held = b"".join(self._held), []
        return held


def _is_frame(line: bytes) -> bool:
    return _FRAME.fullmatch(line) is not None
