"""Faults on cue, for tests.

`MemoryStorage` dies or fails at a verb that a test names; `thalweg.faults` ends a batch at a phase that it names.
"""

from __future__ import annotations


class Death(BaseException):
    """The process ended here, as by SIGKILL: no `except Exception` sees it."""
