"""Moves what ended long ago into the archive: whole runs, whole groups of linked instances, if none of them is live."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import structlog
from sqlalchemy import Engine, RowMapping
from sqlalchemy.exc import DBAPIError

from interlock.db.connection import retryable, transaction
from interlock.db.core import archive
from interlock.db.core.archive import ArchiveMoved
from interlock.workers.settings import Settings
from interlock.workflows.errors import BadInput

PAGE = 500  # seeds looked at together
PACK = 500  # instances moved in one commit; a group that belongs together may be larger

log = structlog.get_logger()

Unit = list[UUID]


@dataclass(frozen=True, slots=True)
class ArchiveRules:
    """What may be archived: ended `older_than` ago, and with request ids older than `keys_kept`."""

    older_than: timedelta
    keys_kept: timedelta


def rules_of(chosen: Settings, older_than_days: float | None = None) -> ArchiveRules | None:
    """The rules of the settings, or for instances that ended so many days ago; None if archiving is off.

    Raises:
        BadInput: request ids are kept longer than that, and a request id goes with its instance.
    """
    days = chosen.archive_after_days or None if older_than_days is None else older_than_days
    if older_than_days is not None and older_than_days < chosen.keep_finished_days:
        raise BadInput(
            f"--older-than {older_than_days:g}: request ids are kept {chosen.keep_finished_days:g} days, and archiving "
            "an instance deletes its ids. Give at least that many, or lower INTERLOCK_KEEP_FINISHED_DAYS."
        )
    return ArchiveRules(timedelta(days=days), timedelta(days=chosen.keep_finished_days)) if days is not None else None


@dataclass(slots=True)
class ArchivePass:
    """What a pass moved, and what it held back (reason -> instances). `after`: where it stopped, or None at the end."""

    instances: int = 0
    events: int = 0
    held: Counter[str] = field(default_factory=Counter)
    after: UUID | None = None
    visited: set[UUID] = field(default_factory=set)  # one of each unit that was looked at


def archive_ended(
    database: Engine,
    rules: ArchiveRules,
    *,
    after: UUID | None = None,
    budget_seconds: float = float("inf"),
    dry_run: bool = False,
    progress: Callable[[ArchivePass], None] = lambda _: None,
) -> ArchivePass:
    """Look at all that has ended and move what may be moved, in one commit for each few hundred instances.

    If it is killed, each unit has been moved as a whole or not at all.

    Args:
        database: where the instances are.
        rules: what may be moved.
        after: continue behind this instance.
        budget_seconds: stop after this time; `after` of the result says where.
        dry_run: do everything and roll it back, to see what would be moved and what held back.
        progress: called now and then.

    Raises:
        DBAPIError: the database is unreachable; what was moved so far stays moved.
    """
    done, until = ArchivePass(after=after), time.monotonic() + budget_seconds
    while time.monotonic() < until:
        with transaction(database) as connection:
            found = archive.seeds(connection, done.after, older_than=rules.older_than, limit=PAGE)
            near = archive.closure(connection, found, older_than=rules.older_than) if found else []
        if not found:
            done.after = None
            return done
        for pack in _packs(_movable(near, done)):
            _move(database, rules, pack, done, dry_run=dry_run)
            progress(done)
        done.after = found[-1]
    return done


def _movable(near: Sequence[RowMapping], done: ArchivePass) -> list[Unit]:
    """The units not seen yet, all of whose instances ended long ago."""
    ended = {row["id"]: row["ended"] for row in near}
    fresh = [unit for unit in _units(near) if min(unit) not in done.visited]
    done.visited |= {min(unit) for unit in fresh if len(unit) > 1}  # one alone does not come again: seeds go forward
    for unit in fresh:
        if not all(ended[each] for each in unit):
            done.held["a part of its group is live, or ended recently"] += sum(ended[each] for each in unit)
    return [unit for unit in fresh if all(ended[each] for each in unit)]


def _units(near: Sequence[RowMapping]) -> list[Unit]:
    """Groups of instances joined directly or indirectly (union-find with path halving)."""
    above = {row["id"]: row["id"] for row in near}

    def top(one: UUID) -> UUID:
        while above[one] != one:
            above[one] = one = above[above[one]]
        return one

    for row in near:
        for other in row["joined"]:
            if other in above:
                above[top(row["id"])] = top(other)
    units: dict[UUID, Unit] = {}
    for row in near:
        units.setdefault(top(row["id"]), []).append(row["id"])
    return list(units.values())


def _packs(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    pack: list[Unit] = []
    for unit in units:
        if pack and sum(map(len, pack)) + len(unit) > PACK:
            yield pack
            pack = []
        pack.append(unit)
    if pack:
        yield pack


def _move(database: Engine, rules: ArchiveRules, pack: list[Unit], done: ArchivePass, *, dry_run: bool) -> None:
    moved = _try(database, rules, [each for unit in pack for each in unit], dry_run=dry_run)
    if moved.held is None:
        done.instances += moved.instances
        done.events += moved.events
    elif len(pack) == 1:
        done.held[moved.held] += len(pack[0])
    else:  # one unit holds back the others: try each by itself
        for unit in pack:
            _move(database, rules, [unit], done, dry_run=dry_run)


def _try(database: Engine, rules: ArchiveRules, ids: Unit, *, dry_run: bool) -> ArchiveMoved:
    try:
        with database.connect() as connection, connection.begin() as attempt:
            moved = archive.move(connection, ids, older_than=rules.older_than, keys_kept=rules.keys_kept)
            if dry_run or moved.held is not None:
                attempt.rollback()
            return moved
    except DBAPIError as error:
        if retryable(error):
            raise
        log.warning("not_archived", instances=len(ids), error=str(error.orig))
        return ArchiveMoved("PostgreSQL refused: see the log", 0, 0)
