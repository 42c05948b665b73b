"""`interlock breaker`: show, configure and reset circuit breakers."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from interlock.cli.lib.moves import NEWEST, newest_moves
from interlock.cli.lib.options import IfVersion, person
from interlock.cli.lib.output import AsJson, Limit, print_json, print_table, say
from interlock.cli.lib.projects import OnlyProject, print_list
from interlock.db.orchestration.breakers import CONFIGURED
from interlock.workers.circuit_breakers import configure, configured, known, listed
from interlock.workers.client.client import Client
from interlock.workers.overrides.circuit_breakers import reset as reset_breaker
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.output.counts import number_of

app = typer.Typer(
    no_args_is_help=True, help="Circuit breakers: calls to a tool that failed too often are refused for a while."
)

Tool = Annotated[str, typer.Argument(help="The tool's name, as in plans.")]
CHANGE = ("configured_at", "configured_by", *CONFIGURED, "reason")


@app.command("list")
def list_(
    project: OnlyProject = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List circuit breakers.

    \b
    Example:
      interlock breaker list
    """
    with Client() as client:
        found = [asdict(each) for each in listed(client.runtime, project=project, limit=limit)]
    if not print_json(found, as_json):
        columns = ("tool_id", "state", "failure_count", "failure_threshold", "seconds_until_reset")
        print_list(number_of(len(found), "circuit breaker"), [_rounded(each) for each in found], columns, project)


@app.command()
def show(tool: Tool, as_json: AsJson = False) -> None:
    """Show a tool's breaker, its newest moves and its newest changes of configuration: who made them, and why.

    \b
    Example:
      interlock breaker show pytest
    """
    with Client() as client:
        found = asdict(known(client.runtime, client.project, tool))
        events = newest_moves(client, found["breaker_id"])
        changes = configured(client.runtime, found["breaker_id"], limit=NEWEST)
    if print_json(found | {"history": events, "configurations": changes}, as_json):
        return
    say((tool, "bold"), " is ", (found["state"], "bold"), f", {_describe(found)}")
    say(f"{_configured(found)}; project {found['project']}")
    if events:
        columns = ("created_at", "from_state", "trigger", "to_state", "triggered_by", "metadata")
        print_table("newest moves", events, columns)
    if changes:
        print_table("newest changes of configuration", map(_change, changes), CHANGE)


@app.command()
def reset(
    tool: Tool,
    by: Annotated[str, person("The operator.")],
    reason: Annotated[str, typer.Option(help="Why: the cause that has been fixed.")],
    if_version: IfVersion = None,
    as_json: AsJson = False,
) -> None:
    """Close TOOL's breaker at once, even during its cooldown. Its history records who did it and why. The
    same as `interlock override reset-breaker REF`, which also has --dry-run.

    \b
    Example:
      interlock breaker reset pytest --by ann --reason "the disk is no longer full"
    """
    with Client() as client:
        found = asdict(known(client.runtime, client.project, tool))
        closed = asdict(
            reset_breaker(client.runtime, found["project"], tool, OverrideOrder(by, reason, if_version=if_version))
        )
    if not print_json(closed | {"by": by, "reason": reason}, as_json):
        say((tool, "bold"), " is ", (closed["state"], "bold"), f" (was {found['state']})")


@app.command("configure")
def configure_(
    tool: Tool,
    by: Annotated[str, person("Who changes it; stored.")],
    reason: Annotated[str, typer.Option(help="Why; stored.")],
    failure_threshold: Annotated[int | None, typer.Option(min=1, help="Consecutive failures that open it.")] = None,
    cooldown: Annotated[float | None, typer.Option(min=0.001, help="Seconds it stays open.")] = None,
    success_threshold: Annotated[int | None, typer.Option(min=1, help="Successful trial calls that close it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change when TOOL's breaker opens and closes. Takes effect at once, until a plan that configures the
    tool is submitted. Each change is kept with who made it and why; `interlock breaker show` lists them.

    \b
    Example:
      interlock breaker configure pytest --failure-threshold 10 --cooldown 300 --by ann --reason "the suite is flaky"
    """
    with Client() as client:
        changed = configure(
            client.runtime,
            client.project,
            tool,
            by=by,
            reason=reason,
            failure_threshold=failure_threshold,
            cooldown_seconds=cooldown,
            success_threshold=success_threshold,
        )
        changes = configured(client.runtime, changed.breaker_id, limit=1)
    if not print_json(asdict(changed) | {"configurations": changes}, as_json):
        say((tool, "bold"), f" {_configured(asdict(changed))}")


def _change(made: dict[str, Any]) -> dict[str, Any]:
    """A change for people: each value it changed with the one before."""
    values = {name: (made[f"old_{name}"], made[name]) for name in CONFIGURED}
    return made | {name: f"{new:g}" if new == old else f"{old:g} → {new:g}" for name, (old, new) in values.items()}


def _configured(found: dict[str, Any]) -> str:
    failures = number_of(found["failure_threshold"], "failure")
    trials = number_of(found["success_threshold"], "successful trial")
    return f"opens after {failures} in a row, for {found['cooldown_seconds']:g} s; closes after {trials}"


def _describe(found: dict[str, Any]) -> str:
    if found["state"] == "CLOSED":
        return f"{number_of(found['failure_count'], 'failure')} in a row"
    if found["state"] == "OPEN":
        return f"for another {found['seconds_until_reset']:.0f} s"
    return f"{number_of(found['success_count'], 'successful trial')} so far"


def _rounded(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"seconds_until_reset": round(found["seconds_until_reset"])}
