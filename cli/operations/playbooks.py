"""`interlock playbook`: what to do when something is wrong, to be read or walked through."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markdown import Markdown
from rich.markup import escape

from cli.output import AsJson, console, print_json, print_table
from workers.client import Client
from workers.operators import os_user
from workers.overrides.operation import Order
from workers.playbooks import PLAYBOOKS, Look
from workflows.errors import BadInput

INDEX = "README"
PLACES = (Path(__file__).parent / "playbook_pages", Path(__file__).parents[1] / "docs" / "playbooks")

RUN_HELP = {
    "recover-workstream": (
        "Give up what runs for too long in a workstream, then let it be validated, or go on.",
        "night-7/api",
    ),
    "emergency-rollback": ("Take a committed patch back, by its compensation plan.", "night-7/api/fix^1"),
    "reset-breaker": ("See that a tool works (TOOL --version), then close its breaker.", "pytest"),
}

SHOW_HELP = """Show a playbook: symptom, check, cure.

\b
Example:
  interlock playbook show redis-was-wiped
"""

app = typer.Typer(
    help="What to do when something is wrong: pages to read, and some to walk through.", no_args_is_help=True
)
run = typer.Typer(help="Walk through a playbook: it asks before each change.", no_args_is_help=True)
app.add_typer(run, name="run")


def pages() -> dict[str, Path]:
    """Name -> page."""
    place = next((each for each in PLACES if each.is_dir()), PLACES[-1])
    return {page.stem: page for page in sorted(place.glob("*.md")) if page.stem != INDEX}


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the playbooks.

    \b
    Example:
      interlock playbook list
    """
    rows = [{"name": name, "title": page.read_text().splitlines()[0].lstrip("# ")} for name, page in pages().items()]
    if as_json:
        print_json(rows)
    else:
        print_table(f"{len(rows)} playbooks", rows, ("name", "title"))


@app.command("show", help=SHOW_HELP)
def show(
    name: Annotated[str, typer.Argument(help="As `playbook list` names it.")],
    as_json: AsJson = False,
) -> None:
    """Show a page."""
    if name not in (known := pages()):
        raise BadInput(f"no playbook {name!r}. There are: {', '.join(known)}.")
    text = known[name].read_text(encoding="utf-8")
    if as_json:
        print_json({"name": name, "text": text})
    else:
        console.print(Markdown(text) if sys.stdout.isatty() else text, markup=False)


def _walk(name: str, ref: str, order: Order, *, yes: bool, as_json: bool) -> None:
    if not yes and not order.dry_run and not sys.stdin.isatty():
        raise BadInput("nobody is at the terminal to be asked: say --yes, or --dry-run to look first")
    steps: list[dict[str, Any]] = []
    with Client() as client:
        for number, step in enumerate(PLAYBOOKS[name](client.runtime, ref, order), 1):
            if isinstance(step, Look):
                lines, changed = step.lines, False
            else:
                if not as_json:
                    console.print(f"{number}. {escape(step.says)}", highlight=False, soft_wrap=True)
                    console.print(f"   $ {escape(step.command)}", highlight=False, soft_wrap=True)
                if not yes and not order.dry_run:
                    typer.confirm("   Do it?", abort=True)
                lines, changed = step.perform(), not order.dry_run
            steps.append({"says": step.says, "lines": list(lines), "changed": changed})
            if not as_json:
                _say(number, step, lines)
    if as_json:
        print_json({"playbook": name, "ref": ref, "dry_run": order.dry_run, "steps": steps})


def _say(number: int, step: Any, lines: Any) -> None:
    if isinstance(step, Look):
        console.print(f"{number}. {escape(step.says)}", highlight=False, soft_wrap=True)
    for line in lines:
        console.print(f"   {escape(line)}", highlight=False, soft_wrap=True)


def _command(name: str) -> Callable[..., None]:
    def command(
        ref: Annotated[str, typer.Argument(metavar="REF", help="Its name, TYPE/NAME or UUID.")],
        reason: Annotated[str, typer.Option(help="Why; kept in history.")],
        by: Annotated[str, typer.Option(help="The operator.", default_factory=os_user, show_default="the OS user")],
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
        as_json: AsJson = False,
    ) -> None:
        _walk(name, ref, Order(by, reason, dry_run), yes=yes, as_json=as_json)

    return command


for _name, (_says, _ref) in RUN_HELP.items():
    _examples = f"  interlock playbook run {_name} {_ref} --reason WHY --dry-run"
    run.command(_name, help=f"{_says}\n\n\b\nExample:\n{_examples}")(_command(_name))
