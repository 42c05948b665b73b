"""The schema as each migration left it: functions, triggers, constraints, columns, grants; and what differs now.

A trigger that is dropped, or a function that is replaced, lets history be rewritten without leaving anything in the
chains. So a migration records a digest of each object, anchors sign them, and `doctor` and `audit verify` compare.
"""

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256

from psycopg.types.json import Jsonb
from sqlalchemy import Connection, RowMapping

from interlock.db.schema import in_schema
from interlock.db.statements import queries

sql = queries(__file__)

Objects = Mapping[str, str]
"""Object, such as `function interlock.append()` -> SHA-256 (hex) of its definition, owner and grants."""

_NEWEST = in_schema("SELECT objects FROM interlock.schema_states ORDER BY number DESC LIMIT 1")
_ALL = in_schema("SELECT objects FROM interlock.schema_states ORDER BY number")
_LAST = in_schema("""
SELECT login, to_char(recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') AS recorded_at,
       (SELECT count(*) FROM interlock.schema_states) AS times
  FROM interlock.schema_states ORDER BY number DESC LIMIT 1""")
_ADD = in_schema("INSERT INTO interlock.schema_states (objects) VALUES (%(objects)s)")


def present(connection: Connection) -> Objects:
    """The schema as it is now. The transaction has an empty search path afterwards: names are written in full.

    The connection leaves its pool, and ends when the caller gives it back: PostgreSQL keeps in a session what it has
    read of each object, 10 MB.
    """
    connection.detach()
    connection.exec_driver_sql("SELECT set_config('search_path', '', true)")
    return dict(map(tuple, connection.exec_driver_sql(sql("objects"), ()).all()))


def record(connection: Connection) -> None:
    """Record the schema as it is now, unless that is what was recorded last. Only `db.migrate` does."""
    objects = present(connection)
    if objects != newest(connection):
        connection.exec_driver_sql(_ADD, {"objects": Jsonb(objects)})


def newest(connection: Connection) -> Objects:
    """The schema as it was recorded last; empty if it never was."""
    return connection.exec_driver_sql(_NEWEST).scalar_one_or_none() or {}


def recorded(connection: Connection) -> RowMapping:
    """Which `login` recorded the schema last, when (`recorded_at`, as text, UTC), and how often it was (`times`)."""
    return connection.exec_driver_sql(_LAST).mappings().one()


def digest(objects: Objects) -> str:
    """SHA-256 (hex) of a whole schema, which anchors sign; without its owner's members, whom a DBA may change."""
    signed = {object_: digest for object_, digest in objects.items() if not object_.startswith("member ")}
    return sha256(json.dumps(signed, sort_keys=True).encode()).hexdigest()


def recorded_digests(connection: Connection) -> frozenset[str]:
    """The digests of all schemas that were ever recorded."""
    return frozenset(digest(objects) for objects in connection.exec_driver_sql(_ALL).scalars())


def changed(connection: Connection) -> Iterator[tuple[str, str]]:
    """The objects that differ from what the last migration left: which, and how."""
    then, now = newest(connection), present(connection)
    for object_ in sorted(then.keys() | now.keys()):
        if object_ not in now:
            yield object_, "gone: it was there after the last migration"
        elif object_ not in then:
            yield object_, "added: it was not there after the last migration"
        elif then[object_] != now[object_]:
            yield object_, "changed: it is not as the last migration left it"
