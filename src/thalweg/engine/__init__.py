"""Binds the data path to Spark: batch loop, tasks, changelog, recovery. The only package that knows Spark."""
