"""Who stands still, why, and the command that would help (SSOT 5.1)."""
