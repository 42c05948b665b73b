"""Queries for operators: health, metrics, overrides, stuck work, invariants."""
