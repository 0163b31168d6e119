"""The command line: `thalweg demo | run | explain | bench`. Thin: it talks to a session and prints.

A mistake of the user ends with the error's own text and exit code 1, never with a traceback.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import thalweg
from thalweg.cli import bench, demo, show, watch
from thalweg.errors import ThalwegError, state_directory_wanted, statements_unreadable

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


def main() -> None:
    """The entry point of the command `thalweg`."""
    try:
        app()
    except ThalwegError as error:
        err.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


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
) -> None:
    """Run the streams and queries of a file until interrupted."""
    if file is None and state is None:
        raise state_directory_wanted()
    text = _read(file) if file else None
    with _session(state) as session:
        if text is not None:
            show.outcomes(out, session.sql(text))
        if available_now:
            watch.run_available(out, session)
            show.results(out, session)
        else:
            watch.run_until_interrupted(out, session, trigger)
        failed = show.failures(err, session)
    if failed:
        raise typer.Exit(1)


@app.command()
def explain(
    file: StatementsFile,
    state: StateDirectory = None,
    form: Annotated[str, typer.Option(help="text, or a picture: mermaid, graphviz.")] = "text",
) -> None:
    """Say what the queries of a file would share and how they would run, without running them."""
    text = _read(file)
    with _session(state) as session:
        session.sql(text)
        out.print(session.explain(form=form), markup=False, highlight=False, soft_wrap=True)


@app.command(name="demo")
def run_demo(
    seconds: Annotated[int, typer.Option(min=5, help="How long the game is played.")] = 30,
    rows_per_second: Annotated[
        int, typer.Option(min=100, help="Purchases a second, and half as many ads.")
    ] = 100_000,
) -> None:
    """Play a game's purchases and ads through a dozen queries, some made and dropped on the way."""
    with _session(None) as session:
        demo.play(out, session, demo.Game(seconds=seconds, rows_per_second=rows_per_second))


@app.command(
    name="bench",
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


@contextmanager
def _session(state: Path | None) -> Iterator[thalweg.Session]:
    """A session in the directory, or in one that goes away with it."""
    with tempfile.TemporaryDirectory(prefix="thalweg-") as temporary:
        with err.status("starting Spark"):
            session = thalweg.connect(state or Path(temporary) / "state")
        try:
            yield session
        finally:
            with err.status("stopping"):
                session.stop()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise statements_unreadable(str(file), str(error)) from None
