"""The demo's second part: plans on a real repository, with a worker that is killed and patches that do not land."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from sqlalchemy import text

from cli import demo_repository
from cli.output import console, print_table
from cli.run_tree import draw
from db import operators
from db.connect import transaction
from workers.client import Client
from workers.operators import os_user
from workers.orchestration.rollback import compensation_plan, roll_back
from workers.orchestration.submission import Run, submit
from workers.orchestration.watching import Event, View, Watch
from workflows.plan.read import read_plan

PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.1
LINES = 60
HOLDER = """
SELECT i.context->>'pid' AS pid FROM tasks t JOIN workflow_instances i ON i.id = t.worker_id
 WHERE t.run_id = :run AND t.state = 'running'
   AND (SELECT entity_id FROM workflow_instances WHERE id = t.task_id) LIKE '%/report/count'
"""


def plans(client: Client, directory: Path) -> bool:
    """Run both plans and take one patch back; whether everything was there to be seen, and ended as it should."""
    made = demo_repository.make(directory)
    risky = _carried_out(client, made["risky"], directory)
    _set_aside(risky)
    delivery = _carried_out(client, made["delivery"], directory, kill=True)
    console.print("main now:", highlight=False)
    for line in demo_repository.log(directory):
        console.print(f"  {line}", highlight=False, markup=False)
    _taken_back(client, delivery, directory)
    not_shown = [
        what for what, shown in _shown(risky, Watch(client.runtime, delivery.run["id"]).view).items() if not shown
    ]
    for what in not_shown:
        console.print(f"[red]not shown[/]: {what}")
    return not not_shown


def _shown(risky: View, delivery: View) -> dict[str, bool]:
    """What the two plans are for, and whether it happened."""
    gates, patches = delivery.gates.values(), {row["state"] for row in delivery.patches.values()}
    return {
        "a run that fails, its patches set aside": risky.run["state"] == "failed"
        and {row["state"] for row in risky.patches.values()} == {"quarantined"},
        "a run that succeeds": delivery.run["state"] == "succeeded",
        "a killed worker's task, tried again": any(row["retry_count"] for row in delivery.tasks.values()),
        "a gate that failed and passed when run again": any(
            row["retry_of"] and row["state"] == "PASSED" for row in gates
        ),
        "a patch that landed, and one that was rolled back": patches == {"committed", "rolled_back"},
    }


def _carried_out(client: Client, file: Path, directory: Path, *, kill: bool = False) -> View:
    run = submit(client.runtime, read_plan(file.read_text(), name=file.name), by="demo", directory=directory)
    console.print(f"\n[bold]{run.name}[/] ({file.name})")
    watch = Watch(client.runtime, run.id)
    killed, until = not kill, monotonic() + PATIENCE_SECONDS
    while not watch.view.settled:
        if monotonic() > until:
            raise TimeoutError(f"{run.name} did not end within {PATIENCE_SECONDS:g} s; see `interlock doctor`")
        killed = killed or _killed(client, run)
        for event in watch.look():
            _say(event)
        sleep(LOOK_SECONDS)
    console.print(draw(watch.view, lines=LINES))
    return watch.view


def _killed(client: Client, run: Run) -> bool:
    """SIGKILL the worker process that holds the long task, once it does."""
    with transaction(client.runtime.database) as connection:
        found = connection.execute(text(HOLDER), {"run": run.id}).scalar()
    if found is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(int(found), signal.SIGKILL)
    console.print(f"  [red]SIGKILL[/] to worker process {found}, in the middle of report/count")
    return True


def _say(event: Event) -> None:
    if event.kind in ("test_gate", "patch_ledger") or event.state in ("retrying", "failed", "unresponsive"):
        why = f"  ({event.reason})" if event.reason else ""
        console.print(f"  {event.kind} {event.name}: {event.was} → {event.state}{why}", highlight=False, markup=False)


def _set_aside(view: View) -> None:
    rows = [row for row in view.patches.values() if row["state"] == "quarantined"]
    print_table("quarantined, with the reason", rows, ("entity_id", "reason"))


def _taken_back(client: Client, view: View, directory: Path) -> None:
    entry = next(row for row in view.patches.values() if "/document/notes" in row["entity_id"])
    with transaction(client.runtime.database) as connection:
        operators.grant(connection, ["demo"], by="demo")  # nobody else may take back what has landed
    plan = compensation_plan(client.runtime, entry["id"])
    done = roll_back(client.runtime, entry["id"], plan, by=os_user(), reason="nobody asked for notes")
    console.print(f"rolled back {done.entity_id}; main now: {demo_repository.log(directory)[0]}", highlight=False)
