"""`interlock quarantine`: list quarantined patches and why (PATCH-4); quarantine requests."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from interlock.cli.lib.listing import Listing, Row, lists
from interlock.cli.lib.options import person
from interlock.cli.lib.output import AsJson, block, print_json, print_table, say
from interlock.cli.patches.entries import RunName, newest_entries
from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.orchestration import patches
from interlock.workers.client.client import Client
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workflows.errors import BadInput
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.suggestions import offered

LIST_HELP = """List quarantined patches, newest first, with the reason.

\b
Examples:
  interlock quarantine list
  interlock quarantine list --run night-7 --json
"""
CHECKS = ("format", "scope", "constraints", "tests")

app = typer.Typer(no_args_is_help=True, help="Quarantined patches, and why; quarantine requests.")


@app.command("list", help=LIST_HELP)
@lists("quarantined patch", ("entity_id", "updated_at", "quarantine_reason"), plural="quarantined patches", limit=100)
def list_(asked: Listing, run: RunName = "") -> Iterable[Row]:
    """List quarantined patches."""
    return newest_entries(asked, run, ("quarantined",))


@app.command("show")
def show(
    ref: Annotated[str, typer.Argument(metavar="ENTRY", help="Ledger entry: NAME, patch_ledger/NAME or UUID.")],
    as_json: AsJson = False,
) -> None:
    """Show why a patch was quarantined: reason, command output, checks, state history and the diff.

    \b
    Example:
      interlock quarantine show night-7/api/fix^1
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        entry = dict(patches.find(connection, ref, client.project))
    if entry["quarantined_at"] is None:
        look = offered("patch", "show", entry["ledger_id"])
        raise BadInput(f"{entry['entity_id']} is {entry['state']} and was never quarantined; {look} shows it")
    fields = _as_json(entry)
    if print_json(fields, as_json):
        return
    for name in ("entry", "state", "run", "task", "quarantined_at", "reason"):
        say((name, "bold"), f": {fields[name]}")
    checks = ", ".join(
        f"{name} {'passed' if well else 'not passed'}" for name, well in fields["validation_results"].items()
    )
    say(("checks", "bold"), f": {checks}")
    if fields["output"]:
        block(fields["output"])
    print_table("moves", fields["way"], ("timestamp", "trigger", "from_state", "to_state", "reason"))
    block(fields["patch"])
    mend = offered("patch", "create", based_on=entry["ledger_id"], file="CORRECTED", reason="WHY")
    say(f"correct it: {mend}; discard it: {offered('override', 'drop-patch', entry['ledger_id'], reason='WHY')}")


@app.command("request")
def request(
    ids: Annotated[list[str], typer.Argument(metavar="REQUEST_ID…", help="As `interlock show REF` lists them.")],
    reason: Annotated[str, typer.Option(help="Why; stored.")],
    by: Annotated[str, person("The responsible operator; stored.")],
    as_json: AsJson = False,
) -> None:
    """Quarantine requests that are not applied yet: they become dead, and who did it and why is stored.

    Only an operator may. Use it for a harmful trigger, such as one that crashes the workers that apply
    it. `interlock dead` lists it; `interlock redrive ID` applies it after all.
    A request that is already dead, for example because it cannot be read, is
    marked as settled: it stays dead, and `doctor` and `stuck` no longer report it.

    \b
    Example:
      interlock quarantine request 019a… --reason "ends its worker"
    """
    order = OverrideOrder(by, reason)
    with Client() as client, transaction(client.runtime.database) as connection:
        require_operator(connection, order.by, "quarantine", " ".join(ids), project=client.project)
        aside = [dict(row) for row in requests.quarantine(connection, ids, by=by, reason=reason)]
    if not aside:
        raise BadInput(
            f"none of these can be quarantined, because none is pending, scheduled or dead: {', '.join(ids)}. "
            "`interlock show REF` lists requests."
        )
    if not print_json({"quarantined": aside, "by": by, "reason": reason}, as_json):
        print_table(
            f"{number_of(len(aside), 'request')} set aside",
            aside,
            ("request_id", "workflow_type", "entity_id", "trigger"),
        )


def _as_json(entry: dict[str, Any]) -> dict[str, Any]:
    metadata = entry["quarantine_metadata"] or {}
    return {
        "entry": entry["entity_id"],
        "ledger_id": entry["ledger_id"],
        "state": entry["state"],
        "run": entry["run"],
        "task": entry["task"],
        "quarantined_at": entry["quarantined_at"],
        "reason": entry["quarantine_reason"],
        "output": metadata.get("output", ""),
        "validation_results": {name: entry[f"validation_{name}_passed"] for name in CHECKS},
        "metadata": metadata,
        "way": entry["state_history"],
        "patch": entry["body"],
    }
