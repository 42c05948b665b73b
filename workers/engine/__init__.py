"""The one way to change state: lock the instance, decide, write, commit."""
