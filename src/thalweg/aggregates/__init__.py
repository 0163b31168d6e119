"""Aggregates, by families that are made alike: one contract, one file for each, one line for each here."""

KINDS = {
    "counts": "thalweg.aggregates.counts:COUNTS",
    "sums": "thalweg.aggregates.sums:SUMS",
    "extremes": "thalweg.aggregates.extremes:EXTREMES",
    "deviations": "thalweg.aggregates.deviations:DEVIATIONS",
    "of_row": "thalweg.aggregates.of_row:OF_ROW",
    "approximate": "thalweg.aggregates.approximate:APPROXIMATE",
    "percentiles": "thalweg.aggregates.percentiles:PERCENTILES",
    "user": "thalweg.aggregates.user:USER",
}
