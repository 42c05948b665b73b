"""`interlock patch`: look at the ledger, drop what is quarantined, roll back what was committed."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from cli.output import REFUSED, AsJson, console, fail, print_json, print_table
from cli.reading import json_object
from db import instances, patches, plans, requests
from db.connect import transaction
from db.requests import lane_of
from workers.client import Client
from workers.lanes import Drain
from workers.orchestration.rollback import compensation_plan, roll_back
from workers.repository.plan import CompensationPlan
from workflows.errors import BadInput
from workflows.orchestration.patch_ledger import PATCH_LEDGER

Ref = Annotated[str, typer.Argument(help="Ledger entry: its name, patch_ledger/NAME or its UUID.")]
By = Annotated[str, typer.Option(help="Who answers for it.")]
Reason = Annotated[str, typer.Option(help="Why.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest.")]

COLUMNS = ("entity_id", "state", "commit_sha", "apply_retries", "updated_at")

ROLL_BACK_HELP = """Take a committed patch back, by a compensation plan: the reverts and what must be proved first, then
the branch moves, then the ledger says so. If anything that is required fails, nothing has changed.

\b
Exit code: 0 rolled back, 1 a required action failed, 2 refused (not committed, a plan that will not do).

\b
Examples:
  interlock patch roll-back demo-1/api/fix^1 --by ann --reason "regression in billing"
  interlock patch plan demo-1/api/fix^1 > plan.json && vi plan.json
  interlock patch roll-back demo-1/api/fix^1 --plan plan.json --by ann --reason "regression in billing"
"""
PLAN_HELP = """Print a compensation plan to begin with: revert the commit, and let the gates that it passed pass again.

\b
Example:
  interlock patch plan demo-1/api/fix^1 > plan.json
"""
DROP_HELP = """Discard a patch that is quarantined, or that could not be applied. A mended one is a new patch.

\b
Example:
  interlock patch drop demo-1/api/fix^1 --by ann --reason "superseded by a new patch"
"""

app = typer.Typer(help="The patch ledger: what landed, what did not and why, and taking patches back.")


@app.command("list", help="List ledger entries, the newest first.")
def list_(
    run: Annotated[str, typer.Option(help="Only those of this run: its name or UUID.")] = "",
    state: Annotated[str, typer.Option(help="Only those in this state.")] = "",
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List entries."""
    if state and state not in PATCH_LEDGER.states:
        raise BadInput(f"no state {state!r}. There are: {', '.join(PATCH_LEDGER.states)}.")
    found = _page(run, (state,) if state else (), limit)
    if as_json:
        print_json(found)
    else:
        print_table(f"{len(found)} patches", found, COLUMNS)


@app.command("quarantined", help="List quarantined patches, with the reason.")
def quarantined(
    run: Annotated[str, typer.Option(help="Only those of this run: its name or UUID.")] = "",
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List what is quarantined."""
    found = _page(run, ("quarantined",), limit)
    if as_json:
        print_json(found)
    else:
        print_table(f"{len(found)} quarantined patches", found, ("entity_id", "updated_at", "quarantine_reason"))


@app.command("show", help="Show one entry: its patch, its checks, its way and what became of it.")
def show(ref: Ref, as_json: AsJson = False) -> None:
    """Show an entry."""
    with Client() as client, transaction(client.runtime.database) as connection:
        entry = dict(patches.entry(connection, instances.find(connection, ref)["id"]))
    if as_json:
        print_json(entry)
        return
    console.print(f"[bold]{entry['entity_id']}[/] is [bold]{entry['state']}[/] ({entry['ledger_id']})", highlight=False)
    for name in ("commit_sha", "quarantine_reason", "rollback_reason"):
        if entry[name]:
            console.print(f"{name.replace('_', ' ')}: {entry[name]}", highlight=False, markup=False, soft_wrap=True)
    passed = {name: entry[f"validation_{name}_passed"] for name in ("format", "scope", "constraints", "tests")}
    console.print("passed:", ", ".join(name for name, well in passed.items() if well) or "nothing yet", highlight=False)
    print_table("its way", entry["state_history"], ("at", "trigger", "state", "reason"))
    console.print(entry["body"], highlight=False, markup=False, soft_wrap=True)


@app.command("plan", help=PLAN_HELP)
def plan_(ref: Ref) -> None:
    """Print a plan."""
    with Client() as client:
        print_json(compensation_plan(client.runtime, ref).model_dump(mode="json"))


@app.command("roll-back", help=ROLL_BACK_HELP)
def roll_back_(
    ref: Ref,
    by: By,
    reason: Reason,
    plan: Annotated[Path | None, typer.Option(help="The compensation plan, JSON; default: as `patch plan`.")] = None,
    as_json: AsJson = False,
) -> None:
    """Roll a patch back."""
    with Client() as client:
        done = roll_back(client.runtime, ref, _read(plan) if plan else None, by=by, reason=reason)
    if as_json:
        print_json(asdict(done))
        return
    console.print(f"[green]rolled back[/] {done.entity_id}", highlight=False)
    print_table("what was done", map(_row, done.compensation["actions"]), ("action", "required", "success", "says"))


@app.command("drop", help=DROP_HELP)
def drop(ref: Ref, by: By, reason: Reason, as_json: AsJson = False) -> None:
    """Drop a patch."""
    with Client() as client:
        receipt = client.fire(ref, "drop", by=by, data={"authorized_by": by, "reason": reason})
        Drain(client.runtime).lane(lane_of(receipt.workflow_id))
        with transaction(client.runtime.database) as connection:
            settled = dict(requests.by_ids(connection, [receipt.request_id])[receipt.request_id])
    if settled["status"] not in ("applied", "pending"):
        raise typer.Exit(fail("Refused", f"{ref}: {_why(settled)}", REFUSED, as_json=as_json))
    if as_json:
        print_json(settled | {"fingerprint": None})
    else:
        console.print(f"[green]dropped[/] {ref}", highlight=False)


def _why(settled: dict[str, Any]) -> str:
    return str(settled["error"] or (settled["result"] or {}).get("message") or settled["status"])


def _row(action: dict[str, Any]) -> dict[str, Any]:
    return action | {name: "yes" if action[name] else "no" for name in ("required", "success")}


def _page(run: str, states: tuple[str, ...], limit: int) -> list[dict[str, Any]]:
    with Client() as client, transaction(client.runtime.database) as connection:
        run_id = plans.find_run(connection, run)["id"] if run else None
        return [dict(row) for row in patches.page(connection, run=run_id, states=states, limit=limit)]


def _read(file: Path) -> CompensationPlan:
    said = json_object("--plan", f"@{file}")
    try:
        return CompensationPlan.model_validate_json(json.dumps(said))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'plan'}: {each['msg']}" for each in error.errors())
        raise BadInput(f"{file}: {wrong}") from error
