"""Deprecates parts of definitions and removes versions (VERSION-3). Each is an instance (docs/spec/governance.md)."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from interlock.db.connection import transaction
from interlock.db.core import deprecations
from interlock.db.core.deprecations import DefinitionPart, ListedDeprecation
from interlock.db.core.request_rows import Right, by_state
from interlock.workers.engine.deprecations import deprecation_warning
from interlock.workers.overrides.at_once import AtOnce, at_once
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import Refused
from interlock.workflows.input import names
from interlock.workflows.input.arguments import door
from interlock.workflows.output.suggestions import offered

CODE = "the code"  # deprecated by a mark there, announced when the definitions are recorded


class CannotDeprecate(Refused):
    """The part is deprecated already or not at all, or its version cannot be removed; the message says what helps."""


def announce_marks(runtime: Runtime) -> int:
    """Announce the deprecations marked in the code; returns the number of new ones. One that was undone stays so.

    Args:
        runtime: its schema's owner acts (`Runtime.owned`).

    Raises:
        StillDeciding: see `at_once`.
    """
    marks: dict[DefinitionPart, str] = {}
    for each in runtime.catalogue:
        marks |= {
            DefinitionPart(each.type, each.version, "state", state): why for state, why in each.deprecated.items()
        }
        marks |= {
            DefinitionPart(each.type, each.version, "trigger", move.trigger): move.deprecated
            for move in each.transitions
            if move.deprecated
        }
    if not marks:
        return 0
    with transaction(runtime.owned) as connection:
        known = deprecations.parts_announced_by(connection, CODE)
    if not marks.keys() - known:
        return 0
    with at_once(runtime, runtime.owned) as acting:
        known = deprecations.parts_announced_by(acting.connection, CODE)
        new = [part for part in marks if part not in known and not deprecations.of_part(acting.connection, part)]
        for part in new:
            _announce(acting, part, by=CODE, reason=marks[part], right=by_state(0), more={})
        return len(new)


@door
def announce(
    runtime: Runtime,
    part: DefinitionPart,
    order: OverrideOrder,
    *,
    guide: str = "",
    remove_after: datetime | None = None,
) -> ListedDeprecation:
    """Deprecate a version, state or trigger.

    Args:
        runtime: where.
        part: which.
        order: an operator, and why.
        guide: what to do instead.
        remove_after: when it may be removed; in 30 days unless given. Earlier only if no instance lives under it.

    Returns:
        Its row, as `db.core.deprecations.listed`.

    Raises:
        NotAnOperator: nothing was changed.
        BadInput: the guide is not valid.
        CannotDeprecate: it is deprecated already.
        CannotMove: PostgreSQL refuses it: no such part, or too short a notice.
        StillDeciding: see `at_once`.
    """
    more = {"guide": names.reason("guide", guide)} if guide else {}
    more |= {"remove_after": remove_after.astimezone(UTC).isoformat()} if remove_after else {}
    with at_once(runtime) as acting:
        require_operator(acting.connection, order.by, "announce", f"deprecation of {part}")
        if known := deprecations.of_part(acting.connection, part):
            raise CannotDeprecate(
                f"deprecated already, on {known['deprecated_at']:%Y-%m-%d} by {known['deprecated_by']}: "
                f"{deprecation_warning(dict(known))}"
            )
        _announce(acting, part, by=order.by, reason=order.reason, right=order.right, more=more)
        return _required(acting.connection, part)


@door
def undo(runtime: Runtime, part: DefinitionPart, order: OverrideOrder) -> None:
    """Take a deprecation back. Raises `NotAnOperator`, `CannotDeprecate`, `CannotMove` or `StillDeciding`."""
    _move(runtime, part, order, "undo")


@door
def propose_removal(runtime: Runtime, type_: str, version: str, order: OverrideOrder) -> None:
    """Propose that a version be removed; another operator approves it.

    Raises:
        NotAnOperator, CannotDeprecate, StillDeciding: nothing was changed.
    """
    _move(runtime, DefinitionPart(type_, version), order, "propose_removal", _require_removable)


@door
def withdraw_removal(runtime: Runtime, type_: str, version: str, order: OverrideOrder) -> None:
    """Withdraw the proposal to remove a version. Raises as `undo`."""
    _move(runtime, DefinitionPart(type_, version), order, "withdraw_removal")


@door
def approve_removal(runtime: Runtime, type_: str, version: str, order: OverrideOrder) -> None:
    """Remove a version, as another operator proposed: no instance can be created under it or migrated to it any more.

    Ended instances stay.

    Raises:
        NotAnOperator, CannotDeprecate, StillDeciding: nothing was changed.
        CannotMove: PostgreSQL refuses it; who proposed it cannot approve it.
    """
    _move(runtime, DefinitionPart(type_, version), order, "approve_removal", _require_removable)


def _announce(
    acting: AtOnce, part: DefinitionPart, *, by: str, reason: str, right: Right, more: Mapping[str, Any]
) -> None:
    terms = {"type": part.type, "version": part.version, "kind": part.kind, **more}
    terms |= {"name": part.name} if part.name else {}
    entity_id = f"{part.type}-{part.version}#{deprecations.total(acting.connection) + 1}"
    token = right.proof if right.authority == "operator" else None
    made = acting.born("deprecation", entity_id, by=by, terms=terms, proof=token)
    acting.move(made, "announce", by=by, reason=reason, right=right)


def _move(
    runtime: Runtime,
    part: DefinitionPart,
    order: OverrideOrder,
    trigger: str,
    judge: Callable[[Runtime, ListedDeprecation], None] = lambda *_: None,
) -> None:
    with at_once(runtime) as acting:
        require_operator(acting.connection, order.by, trigger, f"deprecation of {part}")
        found = _required(acting.connection, part)
        judge(runtime, found)
        # The code no longer has the type: then its newest version can be removed, too.
        more = {"retired": True} if found["type"] not in runtime.catalogue.newest else {}
        acting.move(found["deprecation_id"], trigger, by=order.by, reason=order.reason, right=order.right, more=more)


def _required(connection: Connection, part: DefinitionPart) -> ListedDeprecation:
    if found := deprecations.of_part(connection, part):
        return found
    options = {part.kind: part.name} if part.name else {}
    command = offered("definitions", "deprecate", part.type, part.version, **options, reason="WHY")
    raise CannotDeprecate(f"{part} is not deprecated: {command}")


def _require_removable(runtime: Runtime, row: ListedDeprecation) -> None:
    named = f"{row['type']} {row['version']}"
    if row["removed_at"]:
        raise CannotDeprecate(f"{named} was removed on {row['removed_at']:%Y-%m-%d} by {row['removed_by']}")
    if not row["due"]:
        raise CannotDeprecate(f"{named} can be removed after {row['remove_after']:%Y-%m-%d}, not earlier")
    newest = runtime.catalogue.newest.get(row["type"])
    if newest and newest.version == row["version"]:
        raise CannotDeprecate(
            f"{row['version']} is the newest version in the code, so every new {row['type']} gets it: declare a newer "
            f"version first, or take {row['type']} out of WORKFLOWS"
        )
    if row["live"]:
        raise CannotDeprecate(
            f"{row['live']} live instances use {named}. {row['guide'] or 'Migrate or end them first'}"
        )
