"""Manual overrides: what operators may do whatever the guards say, and how it is told (SSOT 2.5.4, 5.2)."""
