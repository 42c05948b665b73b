"""Event logs as files: their schema, and whether their events are possible. Pure: lines in, findings out."""
