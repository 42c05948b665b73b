"""The demo's second part: plans on a real repository, with a worker that is killed and patches that do not land."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from sqlalchemy import text

from demo import repository
from interlock.cli.lib.output import picture, print_table, say
from interlock.cli.runs.tree import draw
from interlock.db.connection import transaction
from interlock.db.schema import in_schema
from interlock.workers.client.client import Client
from interlock.workers.operations.rollback import compensation_plan, roll_back
from interlock.workers.orchestration.run_view import Event, RunView, Watch
from interlock.workers.orchestration.submission import Run, submit
from interlock.workers.overrides.operators import grant
from interlock.workers.system.users import os_user
from interlock.workflows.plan.read import read_plan

PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.1
LINES = 60
HOLDER = in_schema("""
SELECT i.context->>'pid' AS pid FROM interlock.tasks t JOIN interlock.workflow_instances i ON i.id = t.worker_id
 WHERE t.run_id = :run AND t.state = 'running'
   AND (SELECT entity_id FROM interlock.workflow_instances WHERE id = t.task_id) LIKE '%/report/count'
""")


def plans(client: Client, directory: Path) -> bool:
    """Run both plans and take one patch back; whether everything was there to be seen, and ended as it should."""
    made = repository.make(directory)
    risky = _carried_out(client, made["risky"], directory)
    _set_aside(risky)
    delivery = _carried_out(client, made["delivery"], directory, kill=True)
    say("main now:")
    for line in repository.log(directory):
        say(f"  {line}")
    _taken_back(client, delivery, directory)
    not_shown = [
        what for what, shown in _shown(risky, Watch(client.runtime, delivery.run["id"]).view).items() if not shown
    ]
    for what in not_shown:
        say(("not shown", "red"), f": {what}")
    return not not_shown


def _shown(risky: RunView, delivery: RunView) -> dict[str, bool]:
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


def _carried_out(client: Client, file: Path, directory: Path, *, kill: bool = False) -> RunView:
    run = submit(client.runtime, read_plan(file.read_text(), name=file.name), by="demo", directory=directory)
    say()
    say((run.name, "bold"), f" ({file.name})")
    watch = Watch(client.runtime, run.id)
    killed, until = not kill, monotonic() + PATIENCE_SECONDS
    while not watch.view.settled:
        if monotonic() > until:
            raise TimeoutError(f"{run.name} did not end within {PATIENCE_SECONDS:g} s; see `interlock doctor`")
        killed = killed or _killed(client, run)
        for event in watch.look():
            _say(event)
        sleep(LOOK_SECONDS)
    picture(draw(watch.view, lines=LINES))
    return watch.view


def _killed(client: Client, run: Run) -> bool:
    """SIGKILL the worker process that holds the long task, once it does."""
    with transaction(client.runtime.database) as connection:
        found = connection.execute(text(HOLDER), {"run": run.id}).scalar()
    if found is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(int(found), signal.SIGKILL)
    say("  ", ("SIGKILL", "red"), f" to worker process {found}, in the middle of report/count")
    return True


def _say(event: Event) -> None:
    if event.kind in ("test_gate", "patch_ledger") or event.state in ("retrying", "failed", "unresponsive"):
        why = f"  ({event.reason})" if event.reason else ""
        say(f"  {event.kind} {event.name}: {event.was} → {event.state}{why}")


def _set_aside(view: RunView) -> None:
    rows = [row for row in view.patches.values() if row["state"] == "quarantined"]
    print_table("quarantined, with the reason", rows, ("entity_id", "reason"))


def _taken_back(client: Client, view: RunView, directory: Path) -> None:
    entry = next(row for row in view.patches.values() if "/document/notes" in row["entity_id"])
    # Nobody else may take back what has landed.
    grant(client.runtime, ["demo"], by=os_user(), reason="the demonstration takes a patch back")
    plan = compensation_plan(client.runtime, entry["id"])
    done = roll_back(client.runtime, entry["id"], plan, by=os_user(), reason="nobody asked for notes")
    say(f"rolled back {done.entity_id}; main now: {repository.log(directory)[0]}")
