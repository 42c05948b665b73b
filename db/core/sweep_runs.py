"""When each sweep last ran: what makes a second beat harmless and a dead one visible."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, RowMapping, bindparam, func, select, update

from interlock.db.connection import sql
from interlock.db.tables.core import sweeps


def begin(connection: Connection, names: Sequence[str], *, every_seconds: float) -> set[str]:
    """Claim this period's runs of sweeps, by the database's clock; those that no other beat's message had first."""
    given = {"names": list(names), "every_seconds": every_seconds}
    return set(connection.exec_driver_sql(sql("begin_sweep"), given).scalars())


def end(connection: Connection, ended: Mapping[str, tuple[int, float]]) -> None:
    """Note that runs are over: how much each found, and how many seconds it took."""
    rows = [{"ended": name, "amount": found, "took": seconds} for name, (found, seconds) in sorted(ended.items())]
    finished = sweeps.c.started_at + func.make_interval(0, 0, 0, 0, 0, 0, bindparam("took"))
    values = {"finished_at": finished, "found": bindparam("amount")}
    if rows:
        connection.execute(update(sweeps).where(sweeps.c.name == bindparam("ended")).values(values), rows)


def last_runs(connection: Connection) -> Sequence[RowMapping]:
    """(name, started_at, finished_at, found, age_seconds) of each sweep's last run."""
    age = func.extract("epoch", func.now() - sweeps.c.started_at).label("age_seconds")
    return connection.execute(select(sweeps, age).order_by(sweeps.c.name)).mappings().all()
