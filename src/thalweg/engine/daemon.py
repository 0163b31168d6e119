"""The process that Spark's Python workers are forked from, with everything they need imported already.

After each task PySpark collects garbage over all that was ever imported; frozen objects are left out of it.
"""

from __future__ import annotations

import gc


def warm_up() -> None:
    """Imports the data path and loads its compiled kernels, then freezes them."""
    import thalweg.engine.tasks  # noqa: F401
    from thalweg.operate.gather import warm_gather
    from thalweg.operate.probe import warm_probes
    from thalweg.route.warm import warm_kernels

    warm_kernels()
    warm_probes()
    warm_gather()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    warm_up()
    manager()
