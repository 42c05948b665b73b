"""`interlock patch`: look at the ledger, drop what is quarantined, roll back what was committed."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.compensation import PLAN_HELP, Mended, PlanFile, plan_, read_plan_file
from cli.ending import ending_well
from cli.output import AsJson, console, print_json, print_table
from cli.quarantine import LIST_HELP
from cli.quarantine import list_ as quarantined
from db import patches, plans
from db.connect import transaction
from workers.client import Client
from workers.operators import os_user
from workers.orchestration.material import PATCH_BYTES
from workers.orchestration.patches import create
from workers.orchestration.rollback import roll_back
from workers.overrides.operation import Order
from workers.overrides.others import drop_patch
from workflows.errors import BadInput
from workflows.orchestration.patch_ledger import PATCH_LEDGER_1_1

Ref = Annotated[str, typer.Argument(help="Ledger entry: its name, patch_ledger/NAME or its UUID.")]
By = Annotated[
    str, typer.Option(help="The operator who answers for it.", default_factory=os_user, show_default="the OS user")
]
Reason = Annotated[str, typer.Option(help="Why.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest.")]

COLUMNS = ("entity_id", "state", "commit_sha", "apply_retries", "updated_at")

ROLL_BACK_HELP = """Take a committed patch back, by a compensation plan: the reverts and what must be proved first, then
the branch moves, then the ledger says so. If anything that is required fails, nothing has changed. What was reverted by
hand is told with --commit-sha. The same as `interlock override rollback-patch`, which has --dry-run.

\b
Exit code: 0 rolled back, 1 a required action failed, 2 refused (not committed, a plan that will not do).

\b
Examples:
  interlock patch roll-back demo-1/api/fix^1 --by ann --reason "regression in billing"
  interlock compensation plan demo-1/api/fix^1 --output plan.json && vi plan.json
  interlock patch roll-back demo-1/api/fix^1 --plan plan.json --by ann --reason "regression in billing"
"""
CREATE_HELP = """Put a mended patch into the ledger, for one that was set aside; the old one stays as it is (drop it).

\b
Example:
  interlock patch create --based-on night-7/api/fix^1 --file mended.diff --workstream night-8/api
"""
DROP_HELP = """Discard a patch that is quarantined, or that could not be applied. A mended one is a new patch. The same
as `interlock override drop-patch`, which has --dry-run.

\b
Example:
  interlock patch drop demo-1/api/fix^1 --by ann --reason "superseded by a new patch"
"""

app = typer.Typer(help="The patch ledger: what landed, what did not and why, and taking patches back.")


@app.command("list")
def list_(
    run: Annotated[str, typer.Option(help="Only those of this run: its name or UUID.")] = "",
    state: Annotated[str, typer.Option(help="Only those in this state.")] = "",
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List ledger entries, the newest first.

    \b
    Example:
      interlock patch list --run night-7 --state committed
    """
    if state and state not in PATCH_LEDGER_1_1.states:
        raise BadInput(f"no state {state!r}. There are: {', '.join(PATCH_LEDGER_1_1.states)}.")
    found = _page(run, (state,) if state else (), limit)
    if as_json:
        print_json(found)
    else:
        print_table(f"{len(found)} patches", found, COLUMNS)


app.command("quarantined", help=f"The same as `interlock quarantine list`. {LIST_HELP}")(quarantined)


@app.command("show")
def show(ref: Ref, as_json: AsJson = False) -> None:
    """Show one entry: its patch, its checks, its way and what became of it.

    \b
    Example:
      interlock patch show night-7/api/fix^1
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        entry = dict(patches.find(connection, ref))
    if as_json:
        print_json(entry)
        return
    console.print(f"[bold]{entry['entity_id']}[/] is [bold]{entry['state']}[/] ({entry['ledger_id']})", highlight=False)
    for name in ("commit_sha", "quarantine_reason", "rollback_reason"):
        if entry[name]:
            console.print(f"{name.replace('_', ' ')}: {entry[name]}", highlight=False, markup=False, soft_wrap=True)
    if output := (entry["quarantine_metadata"] or {}).get("output"):
        console.print(output, highlight=False, markup=False, soft_wrap=True)
    passed = {name: entry[f"validation_{name}_passed"] for name in ("format", "scope", "constraints", "tests")}
    console.print("passed:", ", ".join(name for name, well in passed.items() if well) or "nothing yet", highlight=False)
    print_table("its way", entry["state_history"], ("timestamp", "trigger", "from_state", "to_state", "reason"))
    console.print(entry["body"], highlight=False, markup=False, soft_wrap=True)


@app.command("create", help=CREATE_HELP)
def create_(
    based_on: Annotated[str, typer.Option(metavar="ENTRY", help="The ledger entry that was set aside.")],
    by: Annotated[str, typer.Option(help="Who made it.", default_factory=os_user, show_default="the OS user")],
    file: Annotated[Path | None, typer.Option(help="The mended diff; `-`: standard input; default: as it was.")] = None,
    workstream: Annotated[str, typer.Option(help="Where it is to land; default: where the old one was to.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make a patch of one that was set aside."""
    text = _text(file) if file else None
    with Client() as client:
        made = dict(create(client.runtime, based_on, text, by=by, workstream=workstream or None))
    if as_json:
        print_json(made)
    else:
        console.print(f"[green]{made['entity_id']}[/] is on its way ({made['id']})", highlight=False, soft_wrap=True)


app.command("plan", help=f"The same as `interlock compensation plan`. {PLAN_HELP}")(plan_)


@app.command("roll-back", help=ROLL_BACK_HELP)
def roll_back_(
    ref: Ref,
    by: By,
    reason: Reason,
    plan: PlanFile = None,
    mended: Mended = None,
    as_json: AsJson = False,
) -> None:
    """Roll a patch back."""
    wanted = read_plan_file(plan) if plan else None
    with ending_well(), Client() as client:
        done = roll_back(client.runtime, ref, wanted, by=by, reason=reason, mended=mended)
    if as_json:
        print_json(asdict(done))
        return
    console.print(f"[green]rolled back[/] {done.entity_id}", highlight=False)
    print_table("what was done", map(_row, done.compensation["actions"]), ("action", "required", "success", "says"))


@app.command("drop", help=DROP_HELP)
def drop(ref: Ref, by: By, reason: Reason, as_json: AsJson = False) -> None:
    """Drop a patch."""
    with Client() as client:
        done = drop_patch(client.runtime, ref, Order(by, reason))
    if as_json:
        print_json(asdict(done))
    else:
        console.print(f"[green]dropped[/] {ref}", highlight=False)


def _text(file: Path) -> str:
    try:
        raw = sys.stdin.buffer.read(PATCH_BYTES + 1) if str(file) == "-" else file.read_bytes()
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--file {file} cannot be read as UTF-8 text: {error}") from error
    if not text.strip() or len(raw) > PATCH_BYTES or "\0" in text:
        raise BadInput(f"--file {file} must be a diff of at most {PATCH_BYTES:,} bytes without NUL")
    return text


def _row(action: dict[str, Any]) -> dict[str, Any]:
    return action | {name: "yes" if action[name] else "no" for name in ("required", "success")}


def _page(run: str, states: tuple[str, ...], limit: int) -> list[dict[str, Any]]:
    with Client() as client, transaction(client.runtime.database) as connection:
        run_id = plans.find_run(connection, run)["id"] if run else None
        return [dict(row) for row in patches.page(connection, run=run_id, states=states, limit=limit)]
