"""`interlock definitions deprecate | deprecated | remove`: what is not to be used any more, and versions taken away."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import typer
from sqlalchemy.exc import DBAPIError

from cli.output import AsJson, console, print_json, print_table
from cli.reading import when
from db import deprecations
from db.connect import transaction
from workers.client import Client
from workers.deprecations import says
from workers.firing import named
from workers.operators import os_user
from workers.overrides.operation import require_operator
from workflows.errors import BadInput, NotRunning, Refused, UnknownWorkflow

DEPRECATE_HELP = """\
Say that a version, or a state or trigger of it, is not to be used any more: for good, with who and why.

Whoever uses it is told from then on: in the log, in the result of their trigger, by `interlock doctor`.

\b
Examples:
  interlock definitions deprecate task 1.0.0 --reason "1.1.0 can be cancelled from everywhere"
  interlock definitions deprecate story 1.0.0 --trigger block --reason "too coarse" --remove-after 2027-01-31
"""
REMOVE_HELP = """\
Take a deprecated version away: nothing can begin under it, or move to it, any more. Ended instances stay.

Refused (exit code 2) before its time, and while instances live under it: move them first.

\b
Example:
  interlock definitions remove task 1.0.0 --reason "nobody is left"
"""
COLUMNS = ("type", "version", "what", "uses", "live", "last_used_at", "remove_after", "reason", "guide")

Type = Annotated[str, typer.Argument(metavar="TYPE", help="A workflow type.")]
Version = Annotated[str, typer.Argument(metavar="VERSION", help="Its version.")]
By = Annotated[str, typer.Option(help="The operator.", default_factory=os_user, show_default="the OS user")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("deprecate", help=DEPRECATE_HELP)(deprecate)
    app.command("deprecated")(deprecated)
    app.command("remove", help=REMOVE_HELP)(remove)


def known() -> Sequence[Mapping[str, Any]] | None:
    """What is deprecated, as the database has it; None where there is none to ask."""
    try:
        with Client() as client, transaction(client.runtime.database) as connection:
            return [dict(row) for row in deprecations.listed(connection)]
    except (NotRunning, DBAPIError):
        return None


def deprecate(
    type_: Type,
    version: Version,
    reason: Annotated[str, typer.Option(help="Why.")],
    by: By,
    state: Annotated[str | None, typer.Option(help="Only this state: it is not to be entered.")] = None,
    trigger: Annotated[str | None, typer.Option(help="Only this trigger: it is not to be fired.")] = None,
    guide: Annotated[str, typer.Option(help="What to do instead.")] = "",
    remove_after: Annotated[
        str, typer.Option(metavar="DATE", help="It goes after this day, or after so long (90d).")
    ] = "30d",
    as_json: AsJson = False,
) -> None:
    """Deprecate."""
    if state and trigger:
        raise BadInput("say --state or --trigger, not both: each is deprecated for a reason of its own")
    with Client() as client:
        definition = client.runtime.catalogue.get(type_, version)
        if state is not None and state not in definition.states:
            raise BadInput(f"{type_} {version} has no state {state!r}. It has: {', '.join(definition.states)}")
        if trigger is not None:
            definition.require_trigger(trigger)
        kind = "state" if state else "trigger" if trigger else "version"
        newest = _newest(client, type_)
        with transaction(client.runtime.database) as connection:
            new = deprecations.deprecate(
                connection,
                type_=type_,
                version=version,
                kind=kind,
                name=state or trigger or "",
                by=_operator(connection, by),
                reason=named("reason", reason, 1_000),
                guide=guide or (_guide(type_, version, newest) if kind == "version" else ""),
                remove_after=_day(remove_after),
            )
            told = _one(connection, type_, version, kind, state or trigger or "")
    if not new:
        raise BadInput(f"{says(told)}: that was said on {told['deprecated_at']:%Y-%m-%d} by {told['deprecated_by']}")
    if as_json:
        print_json(told)
    else:
        console.print(says(told), highlight=False, markup=False, soft_wrap=True)
        if kind == "version" and newest == version:
            console.print(
                f"every new {type_} still begins under it: declare a newer version", highlight=False, soft_wrap=True
            )


def _operator(connection: Any, by: str) -> str:
    who = named("by", by)
    require_operator(connection, who)
    return who


def _newest(client: Client, type_: str) -> str | None:
    try:
        return client.runtime.catalogue.get(type_).version
    except UnknownWorkflow:  # the code has lost the type
        return None


def _guide(type_: str, version: str, newest: str | None) -> str:
    if newest == version:
        return ""
    return f"Move what lives there: interlock definitions migrate {type_} --from {version} --to {newest} --dry-run"


def _one(connection: Any, type_: str, version: str, kind: str, name: str) -> Mapping[str, Any]:
    path = (type_, version, kind, name)
    rows = deprecations.listed(connection)
    return next(dict(row) for row in rows if (row["type"], row["version"], row["kind"], row["name"]) == path)


def _day(text: str) -> datetime:
    now = datetime.now(UTC)
    try:
        found: datetime | timedelta = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
    except ValueError:
        found = when(text, "--remove-after")
    instant = now + found if isinstance(found, timedelta) else found
    if instant <= now:
        raise BadInput(f"--remove-after {text}: that day is over; the usual notice is 30d")
    return instant


def deprecated(as_json: AsJson = False) -> None:
    """List what is deprecated, how often it was used since, and what still lives there.

    \b
    Example:
      interlock definitions deprecated
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        rows = [dict(row) for row in deprecations.listed(connection)]
    if as_json:
        print_json(rows)
    else:
        print_table(f"{len(rows)} deprecated", [row | {"what": _what(row)} for row in rows], COLUMNS)


def _what(row: Mapping[str, Any]) -> str:
    removed = " (removed)" if row["removed_at"] else ""
    return f"{row['kind']} {row['name']}".strip() + removed


def remove(
    type_: Type,
    version: Version,
    reason: Annotated[str, typer.Option(help="Why.")],
    by: By,
    as_json: AsJson = False,
) -> None:
    """Remove."""
    with Client() as client, transaction(client.runtime.database) as connection:
        who = _operator(connection, by)
        rows = deprecations.listed(connection)
        row = next(
            (each for each in rows if (each["type"], each["version"], each["kind"]) == (type_, version, "version")),
            None,
        )
        if row is None:
            raise Refused(
                f"{type_} {version} is not deprecated: interlock definitions deprecate {type_} {version} --reason WHY"
            )
        if not row["due"]:
            raise Refused(f"{type_} {version} goes after {row['remove_after']:%Y-%m-%d}, not before")
        if _newest(client, type_) == version:
            raise Refused(
                f"every new {type_} begins under {version}, the newest in the code: declare a newer version first, or "
                f"take {type_} out of WORKFLOWS"
            )
        if row["live"]:
            raise Refused(
                f"{row['live']} instances live under {type_} {version}. {row['guide'] or 'Move or end them first'}"
            )
        deprecations.remove(connection, type_=type_, version=version, by=who, reason=named("reason", reason, 1_000))
    if as_json:
        print_json({"removed": f"{type_} {version}"})
    else:
        console.print(f"{type_} {version} is removed: nothing begins under it any more", highlight=False)
