"""Anchors, verification and rebuilding: the queries that prove history."""
