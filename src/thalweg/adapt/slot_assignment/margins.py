"""Makes a table of joint counts agree with the counts of its two route keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SWEEPS = 50
CLOSE = 1e-7
"""Share of the rows that may still sit in a wrong line when the sweeps stop."""


def fit_margins(joint: NDArray[np.floating], lines: Floats, columns: Floats) -> Floats:
    """`joint` scaled line by line and column by column until its sums are `lines` and `columns`.

    Iterative proportional fitting: of all tables with these sums, the one nearest to `joint` (least relative
    entropy), so what `joint` says of agreement is kept. It cannot put rows where `joint` has none: a key group
    that was counted but never sampled. What it leaves over is spread as if the two keys were independent (the
    rounding of Altschuler, Weed and Rigollet), which makes the sums exact after any number of sweeps.
    """
    total = float(lines.sum())
    if total <= 0.0:
        return np.zeros(joint.shape)
    columns = columns * (total / columns.sum())
    # Scaled first: weights of rows may be of any size, and the factors below should stay near 1.
    start = joint.astype(np.float64)
    start *= total / (float(start.sum()) or 1.0)
    down, across = np.ones(len(lines)), np.ones(len(columns))
    for _ in range(SWEEPS):
        # einsum, not BLAS: its threads fight over busy cores.
        sums = np.einsum("gh,h->g", start, across)
        if float(np.abs(down * sums - lines).sum()) <= CLOSE * total:
            break
        down = _ratio(lines, sums)
        across = _ratio(columns, np.einsum("gh,g->h", start, down))
    start *= down[:, None]
    start *= across
    return _complete(start, lines, columns)


def _complete(table: Floats, lines: Floats, columns: Floats) -> Floats:
    """Takes away where a sum is too great, then adds what is missing as a table of independent keys."""
    table *= np.minimum(_ratio(lines, table.sum(axis=1)), 1.0)[:, None]
    table *= np.minimum(_ratio(columns, table.sum(axis=0)), 1.0)
    missing = np.maximum(lines - table.sum(axis=1), 0.0)
    if missing.any():
        table += np.outer(missing / missing.sum(), np.maximum(columns - table.sum(axis=0), 0.0))
    return table


def _ratio(wanted: Floats, sums: Floats) -> Floats:
    return np.divide(wanted, sums, out=np.zeros_like(sums), where=sums > 0.0)
