"""Starts what `interlock definitions handover` wrote as workflows, each once. Needs the package `temporalio`.

Beside the file a log says of each instance, before it is started, that it is to be, and afterwards that it was: so
nothing that may live on Temporal is given back to Interlock, whatever is killed.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from interlock.workflows.definition import Definition
from interlock.workflows.errors import BadInput
from interlock.workflows.forms.parts import called
from interlock.workflows.forms.start_log import STARTED, STARTING, held_log, note
from interlock.workflows.forms.temporal_handover import handed_over, start_of

AT_ONCE = 50  # requests under way


@dataclass(slots=True)
class StartedWorkflows:
    """How many workflows were started, and how many were there already."""

    started: int = 0
    skipped: int = 0


async def start_all(client: Client, definition: Definition, file: Path, task_queue: str) -> StartedWorkflows:
    """Start a workflow for each instance of a handover's file; the id of its workflow is the instance's.

    Run again, it starts what is missing, and skips what is there.

    Args:
        client: connected to the namespace.
        definition: the one that the file is of.
        file: as the command wrote it; the log is written beside it.
        task_queue: the queue of the worker.

    Raises:
        BadInput: a line is of another definition, or its history was changed: what was started before it stays. Or
            another process starts the same file, or takes it back.
        RPCError: the server refuses a start, or is away. Run it again.
    """
    done = StartedWorkflows()
    with held_log(file) as log, file.open(encoding="utf-8") as lines:
        while batch := [_of(definition, line) for line in islice(lines, AT_ONCE)]:
            ids = [each["instance"]["id"] for each in batch]
            note(log, ids, STARTING)
            new = await asyncio.gather(*(_start(client, definition, each, task_queue) for each in batch))
            note(log, ids, STARTED)
            done.started += sum(new)
            done.skipped += len(new) - sum(new)
    return done


def _of(definition: Definition, line: str) -> Mapping[str, Any]:
    said = handed_over(line)
    instance = said["instance"]
    if (instance["type"], instance["definition_version"]) != (definition.type, definition.version):
        raise BadInput(f"{instance['entity_id']} is a {instance['type']} {instance['definition_version']}")
    return said


async def _start(client: Client, definition: Definition, said: Mapping[str, Any], task_queue: str) -> bool:
    """Start one; returns whether it was not there."""
    try:
        await client.start_workflow(
            called(definition),
            start_of(said),
            id=said["instance"]["id"],
            task_queue=task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        )
    except WorkflowAlreadyStartedError:
        return False
    return True
