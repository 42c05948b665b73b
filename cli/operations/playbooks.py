"""`interlock playbook`: pages on what to do when something is wrong; some can be run step by step."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markdown import Markdown

from interlock.cli.lib.options import person
from interlock.cli.lib.output import AsJson, block, picture, print_json, print_table, say
from interlock.workers.client.client import Client
from interlock.workers.operations.playbooks import PLAYBOOKS, Look
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.errors import BadInput
from interlock.workflows.output.counts import number_of

INDEX = "README"
PLACES = (Path(__file__).parents[1] / "playbook_pages", Path(__file__).resolve().parents[2] / "docs" / "playbooks")

RUN_HELP = {
    "recover-workstream": (
        "Fail tasks that run too long in a workstream, then validate the workstream or let it continue.",
        "night-7/api",
    ),
    "emergency-rollback": ("Roll a committed patch back with its compensation plan.", "night-7/api/fix^1"),
    "reset-breaker": ("Check that a tool works (INTERLOCK_TOOL_CHECKS), then close its breaker.", "pytest"),
}


app = typer.Typer(
    help="What to do when something is wrong: pages to read; some can be run step by step.", no_args_is_help=True
)
run = typer.Typer(help="Run a playbook step by step; it asks before each change.", no_args_is_help=True)
app.add_typer(run, name="run")
Name = Annotated[str, typer.Argument(help="A name from `interlock playbook list`.")]


def pages() -> dict[str, Path]:
    """The playbooks: name -> file of the page."""
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
    if not print_json(rows, as_json):
        print_table(number_of(len(rows), "playbook"), rows, ("name", "title"))


@app.command("show")
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a playbook: symptom, check, cure.

    \b
    Example:
      interlock playbook show redis-was-wiped
    """
    if name not in (known := pages()):
        raise BadInput(f"no playbook {name!r}. There are: {', '.join(known)}.")
    text = known[name].read_text(encoding="utf-8")
    if not print_json({"name": name, "text": text}, as_json):
        picture(Markdown(text)) if sys.stdout.isatty() else block(text)


def _walk(name: str, ref: str, order: OverrideOrder, *, yes: bool, as_json: bool) -> None:
    if not yes and not order.dry_run and not sys.stdin.isatty():
        raise BadInput("there is no terminal to ask at: give --yes, or --dry-run to see the steps first")
    steps: list[dict[str, Any]] = []
    with Client() as client:
        for number, step in enumerate(PLAYBOOKS[name](client.runtime, ref, order), 1):
            if isinstance(step, Look):
                lines, changed = step.lines, False
            else:
                if not as_json:
                    say(f"{number}. {step.message}")
                    say(f"   $ {step.command}")
                if not yes and not order.dry_run:
                    typer.confirm("   Do it?", abort=True)
                lines, changed = step.perform(), not order.dry_run
            steps.append({"message": step.message, "lines": list(lines), "changed": changed})
            if not as_json:
                _print_result(number, step, lines)
    print_json({"playbook": name, "ref": ref, "dry_run": order.dry_run, "steps": steps}, as_json)


def _print_result(number: int, step: Any, lines: Any) -> None:
    if isinstance(step, Look):
        say(f"{number}. {step.message}")
    for line in lines:
        say(f"   {line}")


def _command(name: str) -> Callable[..., None]:
    def command(
        ref: Annotated[str, typer.Argument(metavar="REF", help="The instance: NAME, TYPE/NAME or UUID.")],
        reason: Annotated[str, typer.Option(help="Why; stored in history.")],
        by: Annotated[str, person("The operator.")],
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")] = False,
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
        as_json: AsJson = False,
    ) -> None:
        _walk(name, ref, OverrideOrder(by, reason, dry_run), yes=yes, as_json=as_json)

    return command


for _name, (_says, _ref) in RUN_HELP.items():
    _examples = f"  interlock playbook run {_name} {_ref} --reason WHY --dry-run"
    run.command(_name, help=f"{_says}\n\n\b\nExample:\n{_examples}")(_command(_name))
