"""`interlock compensation`: write a plan for rolling a patch back, to edit and pass to `patch roll-back` (PATCH-12)."""

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from interlock.cli.lib.output import AsJson, print_json, say
from interlock.cli.lib.parsing import json_object
from interlock.cli.lib.projects import unusual
from interlock.workers.client.client import Client
from interlock.workers.git.rollback_plan import CompensationPlan
from interlock.workers.operations.rollback import compensation_plan
from interlock.workers.settings import settings
from interlock.workflows.errors import BadInput
from interlock.workflows.output.schema_messages import schema_message
from interlock.workflows.output.suggestions import offered

PLAN_HELP = """Write a first compensation plan for a committed patch: revert the commit, and run the gates that it
passed again. Edit it, then pass it to `interlock patch roll-back` or `interlock override rollback-patch`.

\b
Examples:
  interlock compensation plan night-7/api/fix^1 --output plan.json
  interlock override rollback-patch night-7/api/fix^1 --plan plan.json --reason "regression in billing"
"""

app = typer.Typer(no_args_is_help=True, help="Compensation plans: the actions that roll a committed patch back.")

Ref = Annotated[str, typer.Argument(metavar="ENTRY", help="Ledger entry: NAME, patch_ledger/NAME or UUID.")]
PlanFile = Annotated[
    Path | None, typer.Option(help="Compensation plan (JSON); default: the one `compensation plan` writes.")
]

Mended = Annotated[
    str | None,
    typer.Option("--commit-sha", metavar="SHA", help="Instead of a plan: the commit that reverted it by hand."),
]


@app.callback()
def group() -> None:
    """Without this callback Typer would drop the name of the group's only command."""


@app.command("plan", help=PLAN_HELP)
def plan_(
    ref: Ref,
    output: Annotated[Path | None, typer.Option(help="Where to write it; default: standard output.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a plan."""
    with Client() as client:
        plan = compensation_plan(client.runtime, ref).model_dump(mode="json", exclude_none=True)
    if output is None:
        print_json(plan)
        return
    try:
        output.write_text(json.dumps(plan, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--output {output}: {error.strerror}") from error
    if not print_json({"output": str(output), "plan": plan}, as_json):
        project = unusual(settings().project)
        roll_back = offered("patch", "roll-back", ref, project=project, plan=output, reason="WHY")
        say(f"written to {output}; edit it, then: {roll_back}")


def read_plan_file(file: Path) -> CompensationPlan:
    """Read a compensation plan from a file.

    Raises:
        BadInput: the file cannot be read, or is not a compensation plan; the message says where.
    """
    data = json_object("--plan", f"@{file}")
    try:
        return CompensationPlan.model_validate_json(json.dumps(data))
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'plan'}: {schema_message(each)}" for each in error.errors()
        )
        raise BadInput(f"{file}: {wrong}") from error
