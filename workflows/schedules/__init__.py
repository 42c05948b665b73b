"""Schedules: when they fire, and what (docs/spec/schedule.md)."""
