"""`thalweg`, and `python -m thalweg.cli`: the command line, loaded here so that Ctrl-C may come at any time."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from thalweg.cli.main import main as run_command
    except KeyboardInterrupt:
        sys.exit(130)
    run_command()


if __name__ == "__main__":
    main()
