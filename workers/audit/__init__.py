"""Evidence that leaves the database: keys, anchors, exports, and their checks."""
