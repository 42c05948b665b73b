"""State machine definitions, and the decision which move a trigger makes. Pure: no database, broker, clock, random."""
