"""Schedules: firing what is due, and creating them (docs/spec/schedule.md)."""
