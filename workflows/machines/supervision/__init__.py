"""The machines of a supervisor: its workers and its jobs (docs/spec/supervision.md)."""
