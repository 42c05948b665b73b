"""`interlock definitions deprecate | deprecated | remove`: deprecate parts, list them, remove versions."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any

import typer
from sqlalchemy.exc import DBAPIError

from interlock.cli.lib.options import By
from interlock.cli.lib.output import AsJson, print_json, print_table, say
from interlock.cli.lib.parsing import instant
from interlock.db.connection import transaction
from interlock.db.core import deprecations
from interlock.db.core.deprecations import DefinitionPart
from interlock.workers.client.client import Client
from interlock.workers.engine.deprecations import deprecation_warning
from interlock.workers.overrides.deprecations import (
    announce,
    approve_removal,
    propose_removal,
    undo,
    withdraw_removal,
)
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.errors import BadInput, NotRunning, UnknownWorkflow
from interlock.workflows.output.suggestions import offered

COLUMNS = ("type", "version", "what", "uses", "live", "last_used_at", "remove_after", "reason", "guide")

Type = Annotated[str, typer.Argument(metavar="TYPE", help="A workflow type.")]
Version = Annotated[str, typer.Argument(metavar="VERSION", help="Its version.")]
Reason = Annotated[str, typer.Option(help="Why.")]
NOTICE = "30d"  # VERSION-3
SAID = {
    "proposed": "its removal is proposed; another operator approves it with --approve",
    "withdrawn": "the proposal to remove it is withdrawn",
    "removed": "it is removed: no new instance can use it",
}


def known() -> Sequence[Mapping[str, Any]] | None:
    """The deprecations in the database; None if no database can be reached."""
    try:
        with Client() as client, transaction(client.runtime.database) as connection:
            return [dict(row) for row in deprecations.listed(connection)]
    except (NotRunning, DBAPIError):
        return None


def deprecate(
    type_: Type,
    version: Version,
    reason: Reason,
    by: By,
    state: Annotated[str | None, typer.Option(help="Deprecate only this state: entering it causes a warning.")] = None,
    trigger: Annotated[
        str | None, typer.Option(help="Deprecate only this trigger: firing it causes a warning.")
    ] = None,
    guide: Annotated[str, typer.Option(help="What to use instead.")] = "",
    remove_after: Annotated[
        str,
        typer.Option(
            metavar="DATE",
            help="Earliest removal: a date, or a duration (90d). Less than 30d only if no instance uses it.",
        ),
    ] = NOTICE,
    taken_back: Annotated[bool, typer.Option("--undo", help="Take the deprecation back.")] = False,
    as_json: AsJson = False,
) -> None:
    """Deprecate a version, or one of its states or triggers; with --undo, take that back.

    Within ten seconds, each use causes a warning: in the log, in the trigger's result and in `interlock doctor`. Each
    deprecation is an instance with a history (project interlock:governance); it acts at once, without workers.

    \b
    Examples:
      interlock definitions deprecate task 1.0.0 --reason "1.1.0 can be cancelled from everywhere"
      interlock definitions deprecate story 1.0.0 --trigger block --reason "too coarse" --remove-after 2027-01-31
      interlock definitions deprecate story 1.0.0 --trigger block --undo --reason "it is needed after all"
    """
    if state and trigger:
        raise BadInput("give --state or --trigger, not both: each needs its own reason")
    with Client() as client:
        definition = client.runtime.catalogue.get(type_, version)
        if state is not None and state not in definition.states:
            raise BadInput(f"{type_} {version} has no state {state!r}. It has: {', '.join(definition.states)}")
        if trigger is not None:
            definition.require_trigger(trigger)
        kind = "state" if state else "trigger" if trigger else "version"
        part, order = DefinitionPart(type_, version, kind, state or trigger or ""), OverrideOrder(by, reason)
        if taken_back:
            undo(client.runtime, part, order)
            if not print_json({"undone": str(part), "by": by, "reason": reason}, as_json):
                say(f"{part} is no longer deprecated")
            return
        newest = _newest(client, type_)
        deprecation = announce(
            client.runtime,
            part,
            order,
            guide=guide or (_guide(type_, version, newest) if kind == "version" else ""),
            remove_after=_day(remove_after),
        )
    if not print_json(dict(deprecation), as_json):
        say(deprecation_warning(dict(deprecation)))
        if kind == "version" and newest == version:
            say(f"every new {type_} still gets this version: declare a newer one")


def _newest(client: Client, type_: str) -> str | None:
    try:
        return client.runtime.catalogue.get(type_).version
    except UnknownWorkflow:  # the code no longer has the type
        return None


def _guide(type_: str, version: str, newest: str | None) -> str:
    if newest == version:
        return ""
    versions = {"from": version, "to": newest}
    return f"Move what lives there: {offered('definitions', 'migrate', type_, **versions, dry_run=True)}"


def _day(text: str) -> datetime | None:
    if text == NOTICE:  # counted by the database's clock
        return None
    try:
        found = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
    except ValueError:
        return instant(text, "--remove-after")
    if found <= datetime.now(UTC):
        raise BadInput(f"--remove-after {text} is in the past; the usual notice is 30d")
    return found


def deprecated(as_json: AsJson = False) -> None:
    """List deprecated parts, how often each was used since, and how many live instances still use it.

    \b
    Example:
      interlock definitions deprecated
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        rows = [dict(row) for row in deprecations.listed(connection)]
    if not print_json(rows, as_json):
        print_table(f"{len(rows)} deprecated", [row | {"what": _what(row)} for row in rows], COLUMNS)


def _what(row: Mapping[str, Any]) -> str:
    removed = {"removed": " (removed)", "removal_proposed": " (removal proposed)"}.get(row["state"], "")
    return f"{row['kind']} {row['name']}".strip() + removed


def remove(
    type_: Type,
    version: Version,
    reason: Reason,
    by: By,
    approve: Annotated[bool, typer.Option("--approve", help="Approve what another operator proposed.")] = False,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Withdraw the proposal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Propose to remove a deprecated version. Once another operator has approved it, no instance can be created under
    it, or migrated to it, any more. Ended instances stay.

    Refused (exit code 2) before its removal date, and while live instances use it: migrate them first.

    \b
    Examples:
      interlock definitions remove task 1.0.0 --reason "nobody is left"
      interlock definitions remove task 1.0.0 --approve --by ann --reason "seen to it"
      interlock definitions remove task 1.0.0 --withdraw --reason "one is still needed"
    """
    if approve and withdraw:
        raise BadInput("give --approve or --withdraw, not both")
    act, done = (
        (approve_removal, "removed")
        if approve
        else (withdraw_removal, "withdrawn")
        if withdraw
        else (propose_removal, "proposed")
    )
    with Client() as client:
        act(client.runtime, type_, version, OverrideOrder(by, reason))
    if not print_json({done: f"{type_} {version}", "by": by, "reason": reason}, as_json):
        say(f"{type_} {version}: {SAID[done]}")
