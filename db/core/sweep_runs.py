"""Records when each sweep last ran, so that a second beat does no harm and a dead one is noticed."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, RowMapping, bindparam, func, select, update

from interlock.db.schema import in_schema
from interlock.db.tables.core import sweeps

# Begin runs of sweeps, each once per period by the database's clock: of those that another beat began first, no row.
_BEGIN = in_schema("""
INSERT INTO interlock.sweeps AS s (name, slot, started_at)
SELECT name, floor(extract(epoch FROM now()) / %(every_seconds)s)::bigint, now()
  FROM unnest(%(names)s::text[]) AS asked (name)
 ORDER BY name  -- two beats' messages lock them in the same order
    ON CONFLICT (name) DO UPDATE SET slot = EXCLUDED.slot, started_at = EXCLUDED.started_at, finished_at = NULL
       WHERE floor(extract(epoch FROM s.started_at) / %(every_seconds)s) < EXCLUDED.slot  -- the period may have changed
RETURNING name
""")


def begin(connection: Connection, names: Sequence[str], *, every_seconds: float) -> set[str]:
    """Claim sweeps for the present period, by the database's clock; returns those not claimed by another message."""
    parameters = {"names": list(names), "every_seconds": every_seconds}
    return set(connection.exec_driver_sql(_BEGIN, parameters).scalars())


def end(connection: Connection, ended: Mapping[str, tuple[int, float]]) -> None:
    """Record the ends of runs: how much each found, and how many seconds it took."""
    rows = [{"ended": name, "amount": found, "took": seconds} for name, (found, seconds) in sorted(ended.items())]
    finished = sweeps.c.started_at + func.make_interval(0, 0, 0, 0, 0, 0, bindparam("took"))
    values = {"finished_at": finished, "found": bindparam("amount")}
    if rows:
        connection.execute(update(sweeps).where(sweeps.c.name == bindparam("ended")).values(values), rows)


def last_runs(connection: Connection) -> Sequence[RowMapping]:
    """(name, started_at, finished_at, found, age_seconds) of each sweep's last run."""
    age = func.extract("epoch", func.now() - sweeps.c.started_at).label("age_seconds")
    return connection.execute(select(sweeps, age).order_by(sweeps.c.name)).mappings().all()
