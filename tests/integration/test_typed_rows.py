"""Rows that travel are what their types say: each column is there, none beside, and its value is of that type."""

import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from interlock.db.connection import transaction
from interlock.db.core import deprecations, history, instances
from interlock.db.core.deprecations import DefinitionPart, DeprecationRow, ListedDeprecation
from interlock.db.core.history import EventRow
from interlock.db.core.instances import InstanceRow
from interlock.db.operations import overrides, retries
from interlock.db.operations.overrides import (
    DependencyLink,
    OverriddenGate,
    OverriddenTask,
    OverrideMove,
    Unvalidated,
)
from interlock.db.operations.retries import RetriedWorkstream, WorkstreamPart
from interlock.db.orchestration import patches, regressions, rollbacks, workspaces
from interlock.db.orchestration.patches import CommittedPatch, GateOfRun, ListedPatch, PatchEntry, PatchTask
from interlock.db.orchestration.regressions import BrokenGate, RegressionSearch, RollbackDecision
from interlock.db.orchestration.rollbacks import RollbackOrder
from interlock.db.orchestration.workspaces import RemainsRow, WorkplaceRow
from interlock.workers.operations.rollbacks import order_rollback
from interlock.workers.overrides.deprecations import announce
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.overrides.workstreams_and_patches import drop_patch
from interlock.workers.runtime import Runtime
from tests.driving import state
from tests.integration.test_regressions import GATES, AssemblyLine
from tests.landscape import Landscape

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = "psycopg.Connection[Any]"
Read = list[tuple[Any, Any]]  # the type, and what was read: a row, or several


def misfits(value: Any, hint: Any, where: str) -> Iterator[str]:
    """What of a value is not as its type says."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return
    if is_typeddict(hint):
        hints = get_type_hints(hint)
        if not isinstance(value, Mapping) or set(value) != set(hints):
            yield f"{where} has {sorted(value or ())}, not {sorted(hints)}"
            return
        for name in hints:
            yield from misfits(value[name], hints[name], f"{where}.{name}")
    elif origin in (Union, types.UnionType):
        if all(list(misfits(value, each, where)) for each in arguments):
            yield f"{where} is {value!r}, not {hint}"
    elif origin is list and isinstance(value, list):
        for each in value:
            yield from misfits(each, arguments[0], f"{where}[]")
    elif origin is Literal:
        if value not in arguments:
            yield f"{where} is {value!r}, not {hint}"
    elif not isinstance(value, origin or hint):
        yield f"{where} is {value!r}, not {hint}"


def checked(read: Read) -> None:
    found = [(kind, row) for kind, rows in read for row in (rows if isinstance(rows, list) else [rows])]
    assert {kind for kind, _ in found} == {kind for kind, _ in read}, "each type had a row"
    assert [each for kind, row in found for each in misfits(row, kind, kind.__name__)] == []


def test_rows_of_patches_and_regressions(make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path) -> None:
    line = AssemblyLine(make_runtime(max_attempts=3), dba, tmp_path)
    run = line.run("first", "broken", gates={**GATES, "also": ["true"]})  # for `also`, no search has begun
    (regression,) = line.regressions()
    assert state(line.client, regression) == "proposed"

    def ids(query: str) -> list[Any]:
        return [row[0] for row in dba.execute(query, (run.id,)).fetchall()]

    tasks = ids("SELECT task_id FROM tasks WHERE run_id = %s ORDER BY task_id")
    gates = ids("SELECT gate_id FROM test_gates WHERE run_id = %s")
    homes = ids("SELECT ws_id FROM workstreams WHERE run_id = %s ORDER BY ws_id")
    entries = ids("SELECT ledger_id FROM patch_ledger_entries WHERE run_id = %s")
    (landed, *_) = ids("SELECT ledger_id FROM patch_ledger_entries WHERE run_id = %s AND state = 'committed'")
    rollback = order_rollback(line.runtime, str(landed), OverrideOrder("ann", "a test"))["id"]
    with transaction(line.runtime.database) as connection:
        checked(
            [
                (InstanceRow, [instances.by_id(connection, each) for each in (run.id, *tasks, *homes)]),
                (EventRow, history.of_instance(connection, entries[0])),
                (PatchTask, [patches.of_task(connection, each) for each in tasks]),
                (PatchEntry, [patches.entry(connection, each) for each in entries]),
                (CommittedPatch, patches.committed(connection, run=run.id)),
                (ListedPatch, patches.page(connection, run=run.id)),
                (GateOfRun, patches.gates_of_run(connection, run.id)),
                (BrokenGate, regressions.due(connection, run.id, gates)),
                (RegressionSearch, regressions.search(connection, regression)),
                (RollbackDecision, regressions.decided(connection, regression, 1)),
                (RollbackOrder, [rollbacks.ordered(connection, rollback, 1)]),
                (WorkplaceRow, [workspaces.of_workstream(connection, each) for each in homes]),
                (RemainsRow, [workspaces.remains(connection, each) for each in homes]),
                (OverriddenTask, [overrides.task(connection, each) for each in tasks]),
                (OverriddenGate, [overrides.gate(connection, each) for each in gates]),
                (Unvalidated, [overrides.workstream(connection, each) for each in homes]),
                (DependencyLink, overrides.waits_of(connection, tasks)),
                (RetriedWorkstream, [retries.workstream(connection, each) for each in homes]),
                (WorkstreamPart, retries.parts(connection, homes)),
            ]
        )


def test_rows_of_what_was_set_aside(runtime: Runtime, dba: Dba, tmp_path: Path) -> None:
    land = Landscape(runtime, dba, tmp_path, {"path": "repo", "forbidden_paths": ["secret/"]})
    entry = land.patch({"secret/key": "x\n"})
    land.settle()
    drop_patch(runtime, str(entry), OverrideOrder("ann", "why"))
    with transaction(runtime.database) as connection:
        checked(
            [
                (PatchEntry, patches.entry(connection, entry)),
                (WorkplaceRow, workspaces.of_workstream(connection, land.workstream)),
                (OverrideMove, overrides.newest(connection, project=None, hours=1, by=None, limit=5)),
            ]
        )


def test_rows_of_what_is_deprecated(runtime: Runtime) -> None:
    announce(runtime, DefinitionPart("story", "1.0.0", "trigger", "block"), OverrideOrder("ann", "why"))
    with transaction(runtime.database) as connection:
        checked(
            [
                (DeprecationRow, deprecations.announced(connection)),
                (ListedDeprecation, deprecations.listed(connection)),
            ]
        )


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"unended": "1", "patches": None}, "Unvalidated.unended is '1', not <class 'int'>"),
        ({"unended": 1, "patches": [2]}, "Unvalidated.patches is [2], not list[str] | None"),
        ({"unended": 1}, "Unvalidated has ['unended'], not ['patches', 'unended']"),
    ],
)
def test_a_row_that_is_not_as_its_type_says_is_told(row: dict[str, Any], says: str) -> None:
    assert list(misfits(row, Unvalidated, "Unvalidated")) == [says]
