"""Machines that act at times: schedules (docs/spec/schedule.md)."""
