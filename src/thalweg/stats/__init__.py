"""Measurements of batches -> immutable snapshots that the optimisers read. Pure: no Spark, no files, no clock."""
