"""Binds batches to Spark, or to the calling process. The only package that knows Spark."""
