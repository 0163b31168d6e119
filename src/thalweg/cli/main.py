"""The command line: `thalweg demo | run | explain | bench`. Thin: it talks to a session and prints.

A mistake of the user ends with the error's own text and exit code 1, never with a traceback. Nor does Ctrl-C: it
gives exit code 0 where it is the ordinary end (a steady `run`), and 130 where it cuts a command short.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import thalweg
from thalweg.cli import bench, demo, interrupt, show, watch
from thalweg.cli.interrupt import Interrupt
from thalweg.errors import ThalwegError, state_directory_wanted, statements_unreadable
from thalweg.foreign import plain_lines
from thalweg.session import copy_state

app = typer.Typer(
    help="Hundreds of continuous SQL queries as one shared pipeline on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console()
err = Console(stderr=True)

StatementsFile = Annotated[Path, typer.Argument(help="A file of statements, separated by semicolons.")]
StateDirectory = Annotated[
    Path | None, typer.Option("--state", help="Where state is kept. Left out: a new one, removed at the end.")
]
StateToRead = Annotated[
    Path | None, typer.Option("--state", help="A state directory whose streams and queries are there already.")
]


def main() -> None:
    """The entry point of the command `thalweg`."""
    try:
        app()
    except ThalwegError as error:
        err.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except interrupt.Interrupted:
        _end_at_once()


def _end_at_once() -> None:
    """Without the thread that still works: it may wait for Spark to start. The JVM ends with this process."""
    for console in (out, err):
        console.show_cursor()
        console.file.flush()
    os._exit(interrupt.EXIT_CODE)


def _say_version(wanted: bool) -> None:
    if wanted:
        out.print(f"thalweg {thalweg.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Say the version and end.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Hundreds of continuous SQL queries as one shared pipeline on Apache Spark."""


@app.command()
def run(
    file: Annotated[
        Path | None,
        typer.Argument(help="Statements to run first. Left out: go on with what the state directory holds."),
    ] = None,
    state: StateDirectory = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process the input that is there, print results, end.")
    ] = False,
    trigger: Annotated[str, typer.Option(help="How often a batch starts.")] = "1 second",
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Log events on stderr; -vv: every batch, too.")
    ] = 0,
) -> None:
    """Run the streams and queries of a file until interrupted.

    Ctrl-C is the ordinary end: the batch that runs is finished, and the exit code is 0. With --available-now, and
    before the first batch, it is 130.
    """
    if file is None and state is None:
        raise state_directory_wanted()
    text = _read(file) if file else None
    _log(verbose)

    def work(session: thalweg.Session, interrupted: Interrupt) -> int:
        if text is not None:
            show.outcomes(out, session.sql(text))
        before = session.snapshot().rows
        if not available_now:
            watch.run_until_interrupted(out, session, trigger, interrupted)
        elif watch.run_available(out, session, interrupted):
            return interrupt.EXIT_CODE
        else:
            show.results(out, session)
            show.left_out(err, session.snapshot(), before)
        return 1 if show.failures(err, session) else 0

    _run_session(state, work)


@app.command()
def explain(
    file: StatementsFile,
    state: StateToRead = None,
    form: Annotated[str, typer.Option(help="text, or a picture: mermaid, graphviz.")] = "text",
) -> None:
    """Say what the queries of a file would share and how they would run, without running them.

    Nothing is written, neither to the state directory nor to the queries' sinks. With --state the queries that are
    there take part, with what was measured of them; a pipeline that runs there is not disturbed.
    """
    text = _read(file)

    def work(session: thalweg.Session, interrupted: Interrupt) -> int:
        session.rehearse()
        session.sql(text)
        out.print(plain_lines(session.explain(form=form)), markup=False, highlight=False, soft_wrap=True)
        return 0

    _run_session(None, work, copied=state)


@app.command(name="demo")
def run_demo(
    seconds: Annotated[int, typer.Option(min=5, help="How long the game is played.")] = 30,
    rows_per_second: Annotated[
        int, typer.Option(min=100, help="Purchases a second, and half as many ads.")
    ] = 100_000,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say in the end what the queries share, one by one.")
    ] = False,
) -> None:
    """Play a game's purchases and ads through a dozen queries, some made and dropped on the way.

    Its speed is that of a generator. It is no benchmark: `thalweg bench` has those.
    """
    game = demo.Game(seconds=seconds, rows_per_second=rows_per_second, explains=explain)

    def work(session: thalweg.Session, interrupted: Interrupt) -> int:
        return 0 if demo.play(out, session, game, interrupted) else interrupt.EXIT_CODE

    _run_session(None, work)


@app.command(
    name="bench",
    hidden=not bench.is_there(),
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def run_bench(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="Which benchmark; `list`: which there are; `report`: all, as a page.")
    ] = "list",
) -> None:
    """Run a benchmark of the source tree; what follows its name is for the benchmark itself."""
    if name in ("list", "--help", "-h"):
        show.benches(out, bench.listed())
        return
    raise typer.Exit(bench.run(name, context.args))


def _run_session(
    state: Path | None, work: Callable[[thalweg.Session, Interrupt], int], copied: Path | None = None
) -> None:
    """Works with a session in the directory, or in one that goes away with it: a new one, or a copy of the
    definitions in `copied`. Ends with the work's exit code."""
    with tempfile.TemporaryDirectory(prefix="thalweg-", ignore_cleanup_errors=True) as temporary:
        directory = state or Path(temporary) / "state"
        if copied is not None:
            copy_state(copied, directory)
        code = interrupt.run_interruptibly(lambda interrupted: _work(directory, work, interrupted))
    if code:
        raise typer.Exit(code)


def _work(directory: Path, work: Callable[[thalweg.Session, Interrupt], int], interrupted: Interrupt) -> int:
    with err.status("starting Spark"):
        session = thalweg.connect(directory)
    try:
        return work(session, interrupted)
    finally:
        with err.status("stopping"):
            session.stop()


def _log(verbose: int) -> None:
    """Events of the pipeline on stderr, as often as `-v` was given."""
    if verbose:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        logger = logging.getLogger("thalweg")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise statements_unreadable(str(file), str(error)) from None
