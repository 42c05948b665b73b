"""Compare, lock and export definitions, and migrate instances between versions."""
