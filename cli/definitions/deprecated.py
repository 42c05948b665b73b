"""`interlock definitions deprecate | deprecated | remove`: mark parts as deprecated, list them, remove versions."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import typer
from sqlalchemy.exc import DBAPIError

from interlock.cli.lib.options import person
from interlock.cli.lib.output import AsJson, print_json, print_table, say
from interlock.cli.lib.parsing import when
from interlock.db.connection import transaction
from interlock.db.core import deprecations
from interlock.workers.client.client import Client
from interlock.workers.engine.deprecations import deprecation_warning
from interlock.workers.overrides.transaction import require_operator
from interlock.workflows.errors import BadInput, NotRunning, Refused, UnknownWorkflow
from interlock.workflows.input import names
from interlock.workflows.output.suggestions import offered

COLUMNS = ("type", "version", "what", "uses", "live", "last_used_at", "remove_after", "reason", "guide")

Type = Annotated[str, typer.Argument(metavar="TYPE", help="A workflow type.")]
Version = Annotated[str, typer.Argument(metavar="VERSION", help="Its version.")]
By = Annotated[str, person("The operator.")]


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
    reason: Annotated[str, typer.Option(help="Why.")],
    by: By,
    state: Annotated[str | None, typer.Option(help="Deprecate only this state: entering it causes a warning.")] = None,
    trigger: Annotated[
        str | None, typer.Option(help="Deprecate only this trigger: firing it causes a warning.")
    ] = None,
    guide: Annotated[str, typer.Option(help="What to use instead.")] = "",
    remove_after: Annotated[
        str, typer.Option(metavar="DATE", help="Removable after this date, or after a duration (90d).")
    ] = "30d",
    as_json: AsJson = False,
) -> None:
    """Deprecate a version, or one of its states or triggers. This cannot be undone; operator and reason are kept.

    From then on each use causes a warning: in the log, in the trigger's result and in `interlock doctor`.

    \b
    Examples:
      interlock definitions deprecate task 1.0.0 --reason "1.1.0 can be cancelled from everywhere"
      interlock definitions deprecate story 1.0.0 --trigger block --reason "too coarse" --remove-after 2027-01-31
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
        newest = _newest(client, type_)
        with transaction(client.runtime.database) as connection:
            new = deprecations.deprecate(
                connection,
                type_=type_,
                version=version,
                kind=kind,
                name=state or trigger or "",
                by=_operator(connection, by),
                reason=names.reason("reason", reason, 1_000),
                guide=guide or (_guide(type_, version, newest) if kind == "version" else ""),
                remove_after=_day(remove_after),
            )
            deprecation = _one(connection, type_, version, kind, state or trigger or "")
    if not new:
        raise BadInput(
            f"deprecated already, on {deprecation['deprecated_at']:%Y-%m-%d} by {deprecation['deprecated_by']}: "
            f"{deprecation_warning(deprecation)}"
        )
    if not print_json(deprecation, as_json):
        say(deprecation_warning(deprecation))
        if kind == "version" and newest == version:
            say(f"every new {type_} still gets this version: declare a newer one")


def _operator(connection: Any, by: str) -> str:
    who = names.name("by", by)
    require_operator(connection, who)
    return who


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
        raise BadInput(f"--remove-after {text} is in the past; the usual notice is 30d")
    return instant


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
    removed = " (removed)" if row["removed_at"] else ""
    return f"{row['kind']} {row['name']}".strip() + removed


def remove(
    type_: Type,
    version: Version,
    reason: Annotated[str, typer.Option(help="Why.")],
    by: By,
    as_json: AsJson = False,
) -> None:
    """Remove a deprecated version: no instance can be created under it, or migrated to it, any more. Ended instances
    stay.

    Refused (exit code 2) before its removal date, and while live instances use it: migrate them first.

    \b
    Example:
      interlock definitions remove task 1.0.0 --reason "nobody is left"
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        who = _operator(connection, by)
        rows = deprecations.listed(connection)
        row = next(
            (each for each in rows if (each["type"], each["version"], each["kind"]) == (type_, version, "version")),
            None,
        )
        if row is None:
            raise Refused(
                f"{type_} {version} is not deprecated: "
                + offered("definitions", "deprecate", type_, version, reason="WHY")
            )
        if not row["due"]:
            raise Refused(f"{type_} {version} can be removed after {row['remove_after']:%Y-%m-%d}, not earlier")
        if _newest(client, type_) == version:
            raise Refused(
                f"{version} is the newest version in the code, so every new {type_} gets it: declare a newer version "
                f"first, or take {type_} out of WORKFLOWS"
            )
        if row["live"]:
            raise Refused(
                f"{row['live']} live instances use {type_} {version}. {row['guide'] or 'Migrate or end them first'}"
            )
        deprecations.remove(
            connection, type_=type_, version=version, by=who, reason=names.reason("reason", reason, 1_000)
        )
    if not print_json({"removed": f"{type_} {version}"}, as_json):
        say(f"{type_} {version} is removed: no new instance can use it")
