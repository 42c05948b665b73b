"""What a machine is and what it may do next. Pure: no database, no broker, no clock, no randomness."""
