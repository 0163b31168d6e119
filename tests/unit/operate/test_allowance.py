"""Unit: statements held to their time, with code of users in them."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress

import pytest

from thalweg.model.budget import Budget
from thalweg.operate.allowance import interruptible, within

PROFILED = """
import sys
from thalweg.model.budget import Budget
from thalweg.operate.allowance import OverTimeError, interruptible, within

class Statement:
    def interrupt(self): pass

def busy():
    try:
        while True:
            pass
    except BaseException:
        raise ValueError from None

for seconds, work in ((60.0, lambda: 1), (0.02, busy)):
    try:
        with within(Budget(seconds), Statement(), 0):
            interruptible(work)()
    except OverTimeError:
        pass
    sys.setprofile(lambda *event: None)
    (lambda: None)()
    sys.setprofile(None)
print("done")
"""


class Statement:
    def interrupt(self) -> None:
        pass


@pytest.mark.slow
def test_a_program_can_be_profiled_after_code_of_users_has_run() -> None:
    """An exception that was set for a thread and taken back kept Python 3.11 from ever starting a profile."""
    done = subprocess.run([sys.executable, "-c", PROFILED], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


@pytest.mark.slow
def test_code_whose_time_is_over_leaves_nothing_behind() -> None:
    """Whether it ends by the exception, hides it, or is done just then."""

    def hide() -> None:
        with suppress(BaseException):
            while True:
                pass

    def end_in_time() -> None:
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass

    for work in (hide, end_in_time, lambda: None) * 5:
        with suppress(BaseException), within(Budget(0.02), Statement(), 0):
            interruptible(work)()
        sum(len(str(n)) for n in range(1000))  # nothing comes here
