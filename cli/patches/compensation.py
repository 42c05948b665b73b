"""`interlock compensation`: plans for taking a patch back, to be edited and given to `patch roll-back` (SSOT 2.5.3)."""

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from cli.output import AsJson, console, print_json
from cli.reading import json_object
from workers.client import Client
from workers.orchestration.rollback import compensation_plan
from workers.repository.plan import CompensationPlan
from workflows.errors import BadInput

PLAN_HELP = """Write a compensation plan for a committed patch, to begin with: revert the commit, and let the gates
that it passed pass again. Edit it, and give it to `interlock patch roll-back` or `interlock override rollback-patch`.

\b
Examples:
  interlock compensation plan night-7/api/fix^1 --output plan.json
  interlock override rollback-patch night-7/api/fix^1 --plan plan.json --reason "regression in billing"
"""

app = typer.Typer(no_args_is_help=True, help="Compensation plans: what is done to take a committed patch back.")

Ref = Annotated[str, typer.Argument(metavar="ENTRY", help="Ledger entry: its name, patch_ledger/NAME or its UUID.")]
PlanFile = Annotated[
    Path | None, typer.Option(help="The compensation plan, JSON; default: as `compensation plan` writes it.")
]

Mended = Annotated[
    str | None,
    typer.Option("--commit-sha", metavar="SHA", help="Instead of a plan: the commit that took it back by hand."),
]


@app.callback()
def group() -> None:
    """One command, and named all the same."""


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
    if as_json:
        print_json({"output": str(output), "plan": plan})
    else:
        says = f"written to {output}; edit it, then: interlock patch roll-back {ref} --plan {output} --reason WHY"
        console.print(says, highlight=False, markup=False, soft_wrap=True)


def read_plan_file(file: Path) -> CompensationPlan:
    """A plan from a file.

    Raises:
        BadInput: it cannot be read, or is no compensation plan; says where.
    """
    said = json_object("--plan", f"@{file}")
    try:
        return CompensationPlan.model_validate_json(json.dumps(said))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'plan'}: {each['msg']}" for each in error.errors())
        raise BadInput(f"{file}: {wrong}") from error
