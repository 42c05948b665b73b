"""The tables that SQLAlchemy reads and writes."""
