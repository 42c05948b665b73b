"""The shipped state machines, one per file."""
