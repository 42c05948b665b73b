"""Manual overrides: how operators move instances past guards, and how that is recorded (docs/spec/recovery.md)."""
