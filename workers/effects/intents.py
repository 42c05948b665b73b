"""What the scheduler asks for: a gate's run, a workstream's landing. Apart from what does it, which needs git."""

from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import Connection

from interlock.db.orchestration import workspaces
from interlock.workers.engine import creation
from interlock.workflows.definition import Effect

RUN = Effect("run_gate", failed="gate_failed")
LAND = Effect("land_workstream", failed="validation_failed")


def of_gate(gate_id: UUID, version: int) -> dict[str, Any]:
    """The row, for `effects.intend`, that runs a gate. The id is the same for the same entry of `PENDING`."""
    row = creation.intent(RUN, workflow_id=gate_id, version=version, metadata={})
    return row | {"id": uuid5(gate_id, f"{RUN.name}:{version}")}


def of_landing(connection: Connection, workstream_id: UUID, version: int) -> dict[str, Any]:
    """The row, for `effects.intend`, that lands a workstream. The id is the same for the same entry of `validating`.

    Only one merge per repository runs at a time.
    """
    row = workspaces.of_workstream(connection, workstream_id)
    repository = row["repository"]
    return creation.intent(LAND, workflow_id=workstream_id, version=version, metadata={}) | {
        "id": uuid5(workstream_id, f"{LAND.name}:{version}"),
        "exclusive": repository and f"repository {Path(row['directory'] or '.', repository['path'])}",
    }
