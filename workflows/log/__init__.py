"""Event logs as files: their schema, and whether what they tell can have happened. Pure: lines in, findings out."""
