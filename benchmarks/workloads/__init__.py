"""Workloads: seeded streams and the queries over them, by name."""
