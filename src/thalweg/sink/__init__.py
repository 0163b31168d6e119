"""Where results go: one contract, one file for each kind, one line for each here."""

KINDS = {
    "memory": "thalweg.sink.memory:MEMORY",
    "console": "thalweg.sink.console:CONSOLE",
    "files": "thalweg.sink.files:FILES",
    "spark": "thalweg.sink.spark:SPARK",
    "noop": "thalweg.sink.noop:NOOP",
    "callable": "thalweg.sink.callables:CALLABLE",
}
