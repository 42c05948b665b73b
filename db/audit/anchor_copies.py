"""How far anchors were copied to each place outside of the database, and what kept the last copy from being made."""

from typing import NamedTuple

from sqlalchemy import Connection

from interlock.db.schema import in_schema

_NEW = in_schema("INSERT INTO interlock.anchor_copies (destination) VALUES (%s) ON CONFLICT DO NOTHING")
_LOCK = in_schema("SELECT number FROM interlock.anchor_copies WHERE destination = %s FOR UPDATE SKIP LOCKED")
_NOTE = in_schema("UPDATE interlock.anchor_copies SET number = %s, error = %s WHERE destination = %s")
_STATES = in_schema("""
SELECT d.name, COALESCE(c.number, 0), c.error,
       GREATEST((SELECT COALESCE(max(number), 0) FROM interlock.anchors) - COALESCE(c.number, 0), 0),
       (SELECT extract(epoch FROM now() - max(made_at))::float8 FROM interlock.anchors)
  FROM unnest(%s::text[]) WITH ORDINALITY AS d (name, nth)
  LEFT JOIN interlock.anchor_copies c ON c.destination = d.name
 ORDER BY d.nth
""")


class Copies(NamedTuple):
    """How far a destination is.

    Attributes:
        destination: a directory, or `command PROGRAM`.
        number: the last anchor that was copied there; 0: none.
        error: why the next one was not; None: no fault.
        behind: how many anchors are missing there.
        newest_age_seconds: the age of the newest anchor; None: there is none.
    """

    destination: str
    number: int
    error: str | None
    behind: int
    newest_age_seconds: float | None


def lock(connection: Connection, destination: str) -> int | None:
    """The number of the last anchor copied there, locked for this transaction; None: another process copies to it."""
    connection.exec_driver_sql(_NEW, (destination,))
    number: int | None = connection.exec_driver_sql(_LOCK, (destination,)).scalar_one_or_none()
    return number


def note(connection: Connection, destination: str, number: int, error: str | None = None) -> None:
    """Note how far a destination is, and what went wrong."""
    connection.exec_driver_sql(_NOTE, (number, error, destination))


def states(connection: Connection, destinations: list[str]) -> list[Copies]:
    """How far each destination is, whether anything was ever copied there or not."""
    return [Copies(*row) for row in connection.exec_driver_sql(_STATES, (destinations,))]
