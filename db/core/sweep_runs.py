"""Records when each sweep last ran, so that a second beat does no harm and a dead one is noticed."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, RowMapping, func, select

from interlock.db.schema import in_schema
from interlock.db.tables.core import sweeps

# Begin runs of sweeps, each once per period by the database's clock: of those that another message began, no row.
_BEGIN = in_schema("""
INSERT INTO interlock.sweeps AS s (name, period_at, started_at)
SELECT name, date_bin(make_interval(secs => seconds), now(), 'epoch'), now()
  FROM unnest(%(names)s::text[], %(seconds)s::float[]) AS asked (name, seconds)
 ORDER BY name  -- two messages lock them in the same order
    ON CONFLICT (name) DO UPDATE
       SET period_at = EXCLUDED.period_at, started_at = EXCLUDED.started_at, finished_at = NULL
     WHERE s.started_at < EXCLUDED.period_at
RETURNING name
""")
_END = in_schema("""
  WITH ended AS (
       SELECT name, seconds, found
         FROM unnest(%(names)s::text[], %(seconds)s::float[], %(found)s::int[]) AS ended (name, seconds, found)
         JOIN (SELECT name FROM interlock.sweeps WHERE name = ANY(%(names)s) ORDER BY name FOR UPDATE) AS locked
        USING (name))
UPDATE interlock.sweeps AS s
   SET finished_at = s.started_at + make_interval(secs => ended.seconds), found = ended.found
  FROM ended
 WHERE s.name = ended.name
""")


def begin(connection: Connection, every_seconds: Mapping[str, float]) -> set[str]:
    """Claim sweeps for their present periods, by the database's clock; returns those not claimed by another message.

    Args:
        connection: the caller's transaction.
        every_seconds: the period of each sweep, by its name.
    """
    parameters = {"names": list(every_seconds), "seconds": list(every_seconds.values())}
    return set(connection.exec_driver_sql(_BEGIN, parameters).scalars())


def end(connection: Connection, ended: Mapping[str, tuple[int, float]]) -> None:
    """Record the ends of runs: how much each found, and how many seconds it took."""
    if ended:  # nothing, where another message ran them all
        found, seconds = zip(*ended.values(), strict=True)
        connection.exec_driver_sql(_END, {"names": list(ended), "seconds": list(seconds), "found": list(found)})


def last_runs(connection: Connection) -> Sequence[RowMapping]:
    """(name, started_at, finished_at, found, age_seconds) of each sweep's last run."""
    age = func.extract("epoch", func.now() - sweeps.c.started_at).label("age_seconds")
    return connection.execute(select(sweeps, age).order_by(sweeps.c.name)).mappings().all()
