"""This machine: its users, its processes, files that others may have made."""
