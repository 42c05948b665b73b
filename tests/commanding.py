"""Make runs with plans, and tasks and gates with an operator's command, in one transaction each, which is required.

A context here may contain what is run, as a plan's task does (`command`, `shell`, `env`, `patch_id`, …); it is stored
outside the context.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.connection import transaction
from interlock.db.orchestration import commands, plans, workspaces
from interlock.db.orchestration.commands import CommandRow, Origin
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.runtime import Runtime
from interlock.workflows.machines.orchestration.reserved_fields import without_command
from tests.rights import operate

OPERATOR = "operator-of-tests"
SAME = ("env", "env_from", "cwd", "limits", "sandbox", "patch_id", "message", "timeout_sec", "tool")


def row(context: Mapping[str, Any]) -> CommandRow | None:
    """The command in a context; None if it has none."""
    words, patch = context.get("command"), context.get("patch_id")
    if words is None and patch is None:
        return None
    argv = (words,) if isinstance(words, str) else tuple(words or ())
    return CommandRow(
        kind="patch" if patch else "shell" if isinstance(words, str) else "command",
        argv=argv,
        expected_exit_codes=tuple(context.get("expected_exit_codes", (0,))),
        **{name: context[name] for name in SAME if name in context},
    )


def deliver(runtime: Runtime, wanted: Sequence[Birth]) -> None:
    """Create instances, with the commands in their contexts."""
    bare = [replace(each, context=without_command(each.context)) for each in wanted]
    said = {each.id: (each, found) for each in wanted if (found := row(each.context))}
    if said:
        operate(runtime, OPERATOR)
    with transaction(runtime.database) as connection:
        creation.deliver(connection, bare)
        for birth, found in said.values():
            commands.store(
                connection, _run(connection, birth), {birth.id: found}, Origin("operator", OPERATOR, "a test")
            )


def planned(runtime: Runtime, run: Birth, *others: Birth, directory: Path | str = ".", **body: Any) -> None:
    """Create a run with its workstreams and a plan that has `body` as its content."""
    with transaction(runtime.database) as connection:
        creation.deliver(connection, [run, *others])
        plans.store(connection, run.id, body=body, directory=str(directory))


def _run(connection: Connection, birth: Birth) -> UUID:
    found: UUID = workspaces.of_workstream(connection, UUID(birth.context["workstream_id"]))["run_id"]
    return found
