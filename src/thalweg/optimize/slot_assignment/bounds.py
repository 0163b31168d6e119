"""Lower bounds of the cost that need no solver."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal  # type: ignore[import-untyped]

from thalweg.optimize.slot_assignment.graph import AssignmentGraph, Floats
from thalweg.optimize.slot_assignment.kernels import tridiagonal

DENSE = 1100
"""Nodes up to which eigenvalues are computed."""
EFFORT = 3e-9
"""Seconds that must be left for eigenvalues, over the cube of the nodes: four times what they take."""


def spectral_bound(graph: AssignmentGraph, seconds: float) -> float:
    """Less than any assignment of a graph of one stream costs, from how well the graph can be cut at all.

    After Donath and Hoffman. Scale the adjacency A by the weights w of the nodes, with a diagonal added that makes
    the vector of ones an eigenvector, of eigenvalue mu. (A diagonal adds the same to any assignment; mu is chosen so
    that it adds nothing.) Let the slots' loads be at most M, and W their sum. The indicators of the slots are
    orthogonal. Their part along the ones has at most weight M; the rest, W - M, spreads over the P - 1 other
    directions, none with more than M. So the rows in common inside the slots are at most half of
        mu * M + the greatest sum of eigenvalues, M times each, W - M in all.
    This is linear in M between W/1, W/2, ..., and so is the cost; the least is at one of these, at the least M, or
    at the load cap.
    """
    weights = graph.weights
    used = np.flatnonzero(weights > 0.0)
    if not 1 < len(used) <= DENSE or graph.streams != 1 or seconds < EFFORT * len(used) ** 3:
        return graph.bound()
    total = float(weights.sum())
    mu = float(graph.edge_rows.sum()) / total
    values = _eigenvalues_beside_ones(graph.part(used), mu, graph.slots - 1)
    least = min(graph.fullest(0), total)
    greatest = max(min(float(graph.most[0]), total), least)
    loads = total / np.arange(1, graph.slots + 1)
    cheapest = np.inf
    for most in (*loads[(loads > least) & (loads < greatest)], least, greatest):
        inside = (mu * most + _fill(values, most, total - most)) / 2.0
        shipped = graph.freight.sum() - min(inside, graph.edge_rows.sum() / 2.0)
        cheapest = min(cheapest, shipped * graph.latency.min() + graph.price * most)
    return max(float(cheapest), graph.bound())


def _eigenvalues_beside_ones(graph: AssignmentGraph, mu: float, count: int) -> Floats:
    """The first of the scaled adjacency whose vectors are orthogonal to the ones, greatest first."""
    weights = graph.weights
    heads = np.repeat(np.arange(graph.nodes), np.diff(graph.edge_start))
    matrix = np.zeros((graph.nodes, graph.nodes))
    matrix[heads, graph.edge_node] = graph.edge_rows
    matrix[np.diag_indices(graph.nodes)] = mu * weights - matrix.sum(axis=1)
    root = np.sqrt(weights)
    matrix /= np.outer(root, root)
    # Nothing is greater than mu or less than the least eigenvalue, so this sends the ones to the end of the list.
    away = mu - np.abs(matrix).sum(axis=1).max() * 2.0
    matrix += (away - mu) * np.outer(root, root) / weights.sum()
    # Not by LAPACK's reduction, whose threads fight over busy cores.
    diagonal, beside = tridiagonal(matrix)
    first = max(graph.nodes - count, 1)
    values: Floats = eigvalsh_tridiagonal(diagonal, beside, select="i", select_range=(first, graph.nodes - 1))
    return values[::-1]


def _fill(values: Floats, most: float, total: float) -> float:
    """The greatest sum of values times shares, each share up to `most`, all of them together `total`."""
    shares = np.clip(total - most * np.arange(len(values)), 0.0, most)
    # Rounding aside, the shares add up to the total: there are as many values as slots but one.
    return float(values @ shares)
