"""`python -m thalweg.cli`: the same as the command `thalweg`."""

from thalweg.cli.main import main

main()
