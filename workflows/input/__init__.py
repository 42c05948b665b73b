"""Validation of untrusted input: limits, names, arguments, JSON."""
