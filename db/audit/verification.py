"""The verification that runs by itself: passes over all instances, bit by bit, and over what stands beside history."""

from dataclasses import asdict
from datetime import datetime
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy import Connection, RowMapping

from interlock.db.audit.verify import Verdict
from interlock.db.schema import in_schema, lock_number

VERIFY_LOCK = lock_number(0x1E71_0C4F)
COMPARE_LOCK = lock_number(0x1E71_E71D)
KEPT = 100  # problems kept of a pass; past this, counting is enough

# The pass whose instances are read; a new one, if the last began long enough ago; else no row.
_PRESENT = in_schema("""
WITH last AS (SELECT * FROM interlock.verifications ORDER BY pass DESC LIMIT 1),
     begun AS (INSERT INTO interlock.verifications (started_at)
               SELECT now() FROM (SELECT) AS one LEFT JOIN last ON true
                WHERE last.pass IS NULL
                   OR last.finished_at IS NOT NULL AND last.started_at < now() - make_interval(secs => %(every)s)
               RETURNING *)
SELECT * FROM begun UNION ALL SELECT * FROM last WHERE read_at IS NULL
""")
_NOTE = in_schema("""
UPDATE interlock.verifications
   SET last_id = COALESCE(%(last_id)s, last_id), read_at = CASE WHEN %(ended)s THEN now() END,
       finished_at = CASE WHEN %(ended)s AND compared_at IS NOT NULL THEN now() END,
       instances = instances + %(instances)s, transitions = transitions + %(transitions)s,
       problems = problems + %(problems)s, found = %(found)s
 WHERE pass = %(pass)s
""")
_UNCOMPARED = in_schema("""
SELECT * FROM interlock.verifications
 WHERE pass = (SELECT max(pass) FROM interlock.verifications) AND compared_at IS NULL
""")
_COMPARED = in_schema("""
UPDATE interlock.verifications
   SET compared_at = now(), finished_at = CASE WHEN read_at IS NOT NULL THEN now() END,
       problems = problems + %(problems)s, found = %(found)s
 WHERE pass = %(pass)s
""")
_SOUND = in_schema("""
SELECT max(started_at) FROM interlock.verifications WHERE compared_at IS NOT NULL AND problems = 0
""")
# The last pass that ended, and the one under way: problems are not forgotten before they were looked for again.
_KNOWN = in_schema("""
SELECT *, extract(epoch FROM now() - started_at)::float8 AS age_seconds FROM interlock.verifications
 WHERE pass >= (SELECT COALESCE(max(pass), 0) FROM interlock.verifications WHERE finished_at IS NOT NULL)
 ORDER BY pass
""")


def present(connection: Connection, *, every_seconds: float) -> RowMapping | None:
    """The pass under way, or a new one if the last began that long ago; None if none is due."""
    return connection.exec_driver_sql(_PRESENT, {"every": every_seconds}).mappings().one_or_none()


def note(connection: Connection, present: RowMapping, verdict: Verdict, last_id: UUID | None) -> None:
    """Add to a pass what was just read.

    Args:
        connection: the caller's transaction.
        present: the pass, as before.
        verdict: of the instances that were read.
        last_id: the last instance that was read; None: there are no more.
    """
    read = {
        "pass": present["pass"],
        "last_id": last_id,
        "ended": last_id is None,
        "instances": verdict.instances,
        "transitions": verdict.transitions,
        "problems": verdict.found,
        "found": _found(present, verdict),
    }
    connection.exec_driver_sql(_NOTE, read)


def uncompared(connection: Connection) -> RowMapping | None:
    """The newest pass, if what stands beside history was not compared in it yet."""
    return connection.exec_driver_sql(_UNCOMPARED).mappings().one_or_none()


def note_compared(connection: Connection, verdict: Verdict) -> None:
    """Add what a comparison found to the pass that had none; the caller holds `VERIFY_LOCK`."""
    if present := uncompared(connection):
        row = {"pass": present["pass"], "problems": verdict.found, "found": _found(present, verdict)}
        connection.exec_driver_sql(_COMPARED, row)


def last_sound(connection: Connection) -> datetime | None:
    """When the newest pass began that compared what stands beside history, and found no problem anywhere."""
    found: datetime | None = connection.exec_driver_sql(_SOUND).scalar_one()
    return found


def _found(present: RowMapping, verdict: Verdict) -> Jsonb:
    return Jsonb([*present["found"], *map(asdict, verdict.problems)][:KEPT])


def known(connection: Connection) -> list[RowMapping]:
    """The last pass that ended and the one under way, in this order, each with its `age_seconds` since it began."""
    return list(connection.exec_driver_sql(_KNOWN).mappings())
