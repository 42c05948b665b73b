"""A supervisor's actions on its workers and jobs, and its recovery from their errors (docs/spec/supervision.md)."""
