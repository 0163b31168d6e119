"""Rows to key groups, key groups to slots, tables to the cells that Spark's shuffle carries."""
