"""`interlock patch`: list and show ledger entries, drop quarantined patches, roll back committed ones."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from interlock.cli.lib import completing
from interlock.cli.lib.listing import Listing, Row, lists
from interlock.cli.lib.options import By, Reason
from interlock.cli.lib.orders import Order, ordered
from interlock.cli.lib.output import AsJson, block, print_json, print_table, say
from interlock.cli.lib.overriding import Act, overriding
from interlock.cli.patches.compensation import PLAN_HELP, Mended, PlanFile, plan_, read_plan_file
from interlock.cli.patches.entries import RunName, newest_entries
from interlock.cli.patches.quarantine import LIST_HELP
from interlock.cli.patches.quarantine import list_ as quarantined
from interlock.db.connection import transaction
from interlock.db.orchestration import patches
from interlock.workers.client.client import Client
from interlock.workers.effects.plan_files import PATCH_BYTES
from interlock.workers.operations.rollback import roll_back
from interlock.workers.overrides.correct_patch import correct_patch
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.overrides.workstreams_and_patches import drop_patch
from interlock.workers.runtime import Runtime
from interlock.workers.system.ended_by import ended_by
from interlock.workflows.errors import BadInput
from interlock.workflows.machines.orchestration.patch_ledger import PATCH_LEDGER_1_1
from interlock.workflows.output.escaping import shown

Ref = Annotated[
    str,
    typer.Argument(
        help="Ledger entry: NAME, patch_ledger/NAME or UUID.", autocompletion=completing.named("patch_ledger")
    ),
]

COLUMNS = ("entity_id", "state", "commit_sha", "apply_retries", "updated_at")


app = typer.Typer(help="The patch ledger: what landed, what did not and why; roll patches back.")


@app.command("list")
@lists("patch", COLUMNS, plural="patches", limit=100)
def list_(
    asked: Listing,
    run: RunName = "",
    state: Annotated[str, typer.Option(help="Only patches in this state.")] = "",
) -> Iterable[Row]:
    """List ledger entries, newest first.

    \b
    Example:
      interlock patch list --run night-7 --state committed
    """
    if state and state not in PATCH_LEDGER_1_1.states:
        raise BadInput(f"no state {state!r}. There are: {', '.join(PATCH_LEDGER_1_1.states)}.")
    return newest_entries(asked, run, (state,) if state else ())


app.command("quarantined", help=f"The same as `interlock quarantine list`. {LIST_HELP}")(quarantined)


@app.command("show")
def show(ref: Ref, as_json: AsJson = False) -> None:
    """Show one entry: its diff, its checks, its state history and its outcome.

    \b
    Example:
      interlock patch show night-7/api/fix^1
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        entry: dict[str, Any] = {**patches.find(connection, ref, client.project)}
    if print_json(entry, as_json):
        return
    say((entry["entity_id"], "bold"), " is ", (entry["state"], "bold"), f" ({entry['ledger_id']})")
    because = f": {entry['requested_because']}" if entry["requested_because"] else ""
    say(f"asked for by {entry['requested_by'] or 'nobody'}{because}")
    for name in ("commit_sha", "quarantine_reason", "rollback_reason"):
        if entry[name]:
            say(f"{name.replace('_', ' ')}: {entry[name]}")
    if output := (entry["quarantine_metadata"] or {}).get("output"):
        block(output)
    passed = {name: entry[f"validation_{name}_passed"] for name in ("format", "scope", "constraints", "tests")}
    say("passed: ", ", ".join(name for name, well in passed.items() if well) or "nothing yet")
    print_table("moves", entry["state_history"], ("timestamp", "trigger", "from_state", "to_state", "reason"))
    block(entry["body"])


@app.command("create")
@overriding
def create_(
    based_on: Annotated[str, typer.Option(metavar="ENTRY", help="The ledger entry that was set aside.")],
    file: Annotated[
        Path | None, typer.Option(help="The corrected diff; `-`: standard input; default: unchanged.")
    ] = None,
    workstream: Annotated[str, typer.Option(help="Target workstream; default: the old patch's.")] = "",
) -> Act:
    """Land a corrected patch in place of one that was quarantined, rolled back or dropped. Its task is made anew, with
    the corrected patch as its work; if the workstream has failed, all of it is done again. The task's gates judge the
    corrected patch before it is committed. In another workstream, a new task and new gates do so. The old entry stays;
    drop it. For operators. Exit code 2: refused, nothing was changed.

    \b
    Examples:
      interlock patch create --based-on night-7/api/fix^1 --file mended.diff --reason "the path was wrong" --dry-run
      interlock patch create --based-on night-7/api/fix^1 --file mended.diff --reason "the path was wrong"
      interlock patch create --based-on night-7/api/fix^1 --workstream night-8/api --reason "its base landed"
    """
    text = _text(file) if file else None
    return lambda runtime, order: correct_patch(runtime, based_on, text, order, workstream=workstream or None)


app.command("plan", help=f"The same as `interlock compensation plan`. {PLAN_HELP}")(plan_)


def _say_rolled_back(done: Mapping[str, Any]) -> None:
    say(("rolled back", "green"), f" {done['entity_id']}")
    actions = map(_row, done["compensation"]["actions"])
    print_table("what was done", actions, ("action", "required", "success", "message"))


@app.command("roll-back")
@ordered(_say_rolled_back)
def roll_back_(order: OverrideOrder, ref: Ref, plan: PlanFile = None, mended: Mended = None) -> Order:
    """Roll a committed patch back with a compensation plan. The reverts and required gates run first, then
    the branch moves, then the ledger is updated. If a required action fails, nothing is changed. For a patch that was
    reverted by hand, give --commit-sha. The same as `interlock override rollback-patch`, which also has --dry-run.

    \b
    Exit code: 0 rolled back, 1 a required action failed, 2 refused (not committed, or an unsuitable plan).

    \b
    Examples:
      interlock patch roll-back demo-1/api/fix^1 --by ann --reason "regression in billing"
      interlock compensation plan demo-1/api/fix^1 --output plan.json && vi plan.json
      interlock patch roll-back demo-1/api/fix^1 --plan plan.json --by ann --reason "regression in billing"
    """
    wanted = read_plan_file(plan) if plan else None

    def act(runtime: Runtime) -> dict[str, Any]:
        who = {"by": order.by, "reason": order.reason}
        with ended_by():
            return asdict(roll_back(runtime, ref, wanted, **who, mended=mended)) | who

    return act


@app.command("drop")
def drop(ref: Ref, by: By, reason: Reason, as_json: AsJson = False) -> None:
    """Discard a patch that is quarantined or could not be applied. A corrected version is a new patch. The same
    as `interlock override drop-patch`, which also has --dry-run.

    \b
    Example:
      interlock patch drop demo-1/api/fix^1 --by ann --reason "superseded by a new patch"
    """
    with Client() as client:
        done = drop_patch(client.runtime, ref, OverrideOrder(by, reason))
    if not print_json(asdict(done) | {"by": by, "reason": reason}, as_json):
        say(("dropped", "green"), f" {ref}")


def _text(file: Path) -> str:
    try:
        raw = sys.stdin.buffer.read(PATCH_BYTES + 1) if str(file) == "-" else file.read_bytes()
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--file {shown(file)} cannot be read as UTF-8 text: {error}") from error
    if not text.strip() or len(raw) > PATCH_BYTES or "\0" in text:
        raise BadInput(f"--file {file} must be a diff of at most {PATCH_BYTES:,} bytes without NUL")
    return text


def _row(action: dict[str, Any]) -> dict[str, Any]:
    return action | {name: "yes" if action[name] else "no" for name in ("required", "success")}
