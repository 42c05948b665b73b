"""When each sweep last ran: what makes a second beat harmless and a dead one visible."""

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping, func, select, update

from db.connect import sql
from db.tables import sweeps


def begin(connection: Connection, name: str, *, every_seconds: float) -> bool:
    """Claim this period's run of a sweep, by the database's clock; False where another beat's came first."""
    given = {"name": name, "every_seconds": every_seconds}
    return connection.exec_driver_sql(sql("begin_sweep"), given).first() is not None


def end(connection: Connection, name: str, *, found: int) -> None:
    """Note that a run is over, and how much it found."""
    connection.execute(update(sweeps).where(sweeps.c.name == name).values(finished_at=func.now(), found=found))


def last_runs(connection: Connection) -> Sequence[RowMapping]:
    """(name, started_at, finished_at, found, age_seconds) of each sweep's last run."""
    age = func.extract("epoch", func.now() - sweeps.c.started_at).label("age_seconds")
    return connection.execute(select(sweeps, age).order_by(sweeps.c.name)).mappings().all()
