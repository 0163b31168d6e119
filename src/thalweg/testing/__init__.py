"""For tests, shipped: what is right (`oracle`), what to try (`randomly`), where to fail (`faults`).

Nothing is imported here: `faults` is loaded by every worker of the engine and must stay light.
"""
