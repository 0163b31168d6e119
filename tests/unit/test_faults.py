"""Unit: a fault point ends the process at the passage asked for, and only there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from thalweg import faults
from thalweg.errors import UsageError

PASSAGES = """
from thalweg.faults import point
for _ in range(3):
    point("read")
    print("read", flush=True)
    point("write")
    print("written", flush=True)
"""


def run(setting: str | None) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != faults.VARIABLE}
    if setting is not None:
        env[faults.VARIABLE] = setting
    command = [sys.executable, "-c", PASSAGES]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_nothing_happens_without_a_setting() -> None:
    done = run(None)
    assert done.returncode == 0
    assert done.stdout.split() == ["read", "written"] * 3


@pytest.mark.parametrize(("setting", "before"), [("read", 0), ("write", 1), ("write:2", 3), ("write:3", 5)])
def test_killed_at_the_passage(setting: str, before: int) -> None:
    done = run(setting)
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == before


def test_other_points_are_passed() -> None:
    assert run("elsewhere").returncode == 0


@pytest.mark.parametrize("setting", [":2", "read:0", "read:x", "read:-1"])
def test_bad_setting_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match="THALWEG_FAULT"):
        faults.parse(setting)


def test_registering_keeps_order_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "PHASES", [])
    faults.register("intent", "ingest")
    faults.register("ingest", "manifest")
    assert faults.PHASES == ["intent", "ingest", "manifest"]
