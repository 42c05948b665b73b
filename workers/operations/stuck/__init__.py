"""Finds stuck instances, the reason of each, and the command that would help (RECOVER-3)."""
