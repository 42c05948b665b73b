"""`interlock stuck`: stuck instances, since when, why, and the command that would help."""

from dataclasses import asdict
from typing import Annotated

import typer

from interlock.cli.lib.output import AsJson, print_json, say
from interlock.cli.lib.projects import OnlyProject, unusual, where_asked
from interlock.workers.client.client import Client
from interlock.workers.operations.stuck.detector import Stuck, survey
from interlock.workers.operations.stuck.words import span
from interlock.workflows.errors import BadInput


def stuck(
    type_: Annotated[str, typer.Option("--type", help="Only this workflow type.")] = "",
    project: OnlyProject = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Everything that waits, without thresholds; exit code 0.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of rows, longest first.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List instances that have been in a state for too long: since when, why, and the command that would help.

    Running tasks, executing workstreams, overdue work and other instances that are
    not in a terminal or resting state each have a threshold
    (`INTERLOCK_STUCK_…_SECONDS`). Workers are stuck once they are silent for too
    many heartbeats. Dead requests and effects are listed at once.
    Exit code 1: something is stuck.

    \b
    Examples:
      interlock stuck
      interlock stuck --type task --json
      interlock stuck --all                everything that waits, however briefly
    """
    with Client() as client:
        known = {each.type for each in client.runtime.catalogue}
        if type_ and type_ not in known:
            raise BadInput(f"no workflow type {type_!r}. There are: {', '.join(sorted(known))}.")
        total, found = survey(client.runtime, type_=type_ or None, project=project, everything=everything, limit=limit)
    if not print_json([asdict(each) for each in found], as_json):
        _print_result(total, found, project, everything=everything)
    raise typer.Exit(1 if found and not everything else 0)


def _print_result(total: int, found: list[Stuck], project_named: str | None, *, everything: bool) -> None:
    for each in found:
        project = unusual(each.project)
        where = f" (project {project})" if project else ""
        say((f"{each.workflow_type}/{each.entity_id}", "bold"), f"{where} {each.state} for {span(each.seconds)}")
        say(f"  {each.reason}")
        say(f"  $ {each.command}")
    what = "waits" if everything else "is stuck"
    if not found:
        hint = "" if everything else "; `interlock doctor` looks at servers and processes"
        say(f"nothing {what}{where_asked(project_named, found)}{hint}")
    elif total > len(found):
        say(f"the longest {len(found):,} of {total:,} ({'waiting' if everything else 'stuck'}): --limit shows more")
