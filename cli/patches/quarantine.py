"""`interlock quarantine`: patches that were set aside, and why (SSOT 2.5.1)."""

from typing import Annotated, Any

import typer

from cli.output import AsJson, console, print_json, print_table
from db import patches, plans
from db.connect import transaction
from workers.client import Client
from workflows.errors import BadInput

LIST_HELP = """List quarantined patches, the newest first, with the reason.

\b
Examples:
  interlock quarantine list
  interlock quarantine list --run night-7 --json
"""
SHOW_HELP = """Show why a patch was quarantined: the reason, what was printed, its checks, its way and its text.

\b
Example:
  interlock quarantine show night-7/api/fix^1
"""
CHECKS = ("format", "scope", "constraints", "tests")

app = typer.Typer(no_args_is_help=True, help="Quarantine: patches that were set aside, and why.")


@app.command("list", help=LIST_HELP)
def list_(
    run: Annotated[str, typer.Option(help="Only those of this run: its name or UUID.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List what is quarantined."""
    with Client() as client, transaction(client.runtime.database) as connection:
        run_id = plans.find_run(connection, run)["id"] if run else None
        page = patches.page(connection, run=run_id, states=("quarantined",), limit=limit)
        found = [dict(row) for row in page]
    if as_json:
        print_json(found)
    else:
        print_table(f"{len(found)} quarantined patches", found, ("entity_id", "updated_at", "quarantine_reason"))


@app.command("show", help=SHOW_HELP)
def show(
    ref: Annotated[str, typer.Argument(metavar="ENTRY", help="Ledger entry: its name, patch_ledger/NAME or its UUID.")],
    as_json: AsJson = False,
) -> None:
    """Show one entry."""
    with Client() as client, transaction(client.runtime.database) as connection:
        entry = dict(patches.find(connection, ref))
    if entry["quarantined_at"] is None:
        raise BadInput(
            f"{entry['entity_id']} is {entry['state']} and never was quarantined: interlock patch show {ref}"
        )
    told = _told(entry)
    if as_json:
        print_json(told)
        return
    for name in ("entry", "state", "run", "task", "quarantined_at", "reason"):
        console.print(f"[bold]{name}[/]: {told[name]}", highlight=False, soft_wrap=True)
    checks = ", ".join(
        f"{name} {'passed' if well else 'not passed'}" for name, well in told["validation_results"].items()
    )
    console.print(f"[bold]checks[/]: {checks}", highlight=False)
    if told["output"]:
        console.print(told["output"], highlight=False, markup=False, soft_wrap=True)
    print_table("its way", told["way"], ("timestamp", "trigger", "from_state", "to_state", "reason"))
    console.print(told["patch"], highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"mend it: interlock patch create --based-on {ref} --file MENDED --workstream OPEN_ONE; "
        f"discard it: interlock override drop-patch {ref} --reason WHY",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


def _told(entry: dict[str, Any]) -> dict[str, Any]:
    said = entry["quarantine_metadata"] or {}
    return {
        "entry": entry["entity_id"],
        "ledger_id": entry["ledger_id"],
        "state": entry["state"],
        "run": entry["run"],
        "task": entry["task"],
        "quarantined_at": entry["quarantined_at"],
        "reason": entry["quarantine_reason"],
        "output": said.get("output", ""),
        "validation_results": {name: entry[f"validation_{name}_passed"] for name in CHECKS},
        "metadata": said,
        "way": entry["state_history"],
        "patch": entry["body"],
    }
