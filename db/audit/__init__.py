"""Anchors, verification and rebuilding: the queries that check history."""
