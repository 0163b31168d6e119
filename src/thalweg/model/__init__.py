"""Frozen values that every other package speaks: schema, window, query, plan, routing."""
