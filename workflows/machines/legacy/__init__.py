"""The older machines, as versions below 1.0.0 (docs/spec/legacy.md). New instances get the newest version."""
