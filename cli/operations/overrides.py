"""`interlock override`: what operators do by hand, whatever the guards say."""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from cli import override_list
from cli.compensation import Mended, PlanFile, read_plan_file
from cli.ending import ending_well
from cli.output import AsJson, console, print_json
from workers.client import Client
from workers.operators import os_user
from workers.orchestration.rollback import override_roll_back
from workers.overrides.again import reset_task, skip_step
from workers.overrides.operation import Done, Order
from workers.overrides.others import drop_patch, fail_workstream, reset_breaker, validate_workstream
from workers.overrides.tasks import complete_task, fail_task, unblock_task
from workers.runtime import Runtime

HELP = """Move an instance by hand. An override makes the machine's own moves and passes over their guards; terminal
states stay terminal. Only operators may (`interlock operator --help`); each move is a warning in history, with who
and why.

\b
Exit code: 0 done (or, with --dry-run, possible), 2 refused: nothing was changed, 1 failed.
"""
LOOK_FIRST = "  interlock override {name} {ref} --reason '{reason}' --dry-run\n"
DO_IT = "  interlock override {name} {ref} --reason '{reason}'{more}\n"

app = typer.Typer(no_args_is_help=True, help=HELP)

Ref = Annotated[str, typer.Argument(metavar="REF", help="Its name, TYPE/NAME or UUID.")]
Reason = Annotated[str, typer.Option(help="Why; kept in history.")]
By = Annotated[str, typer.Option(help="The operator.", default_factory=os_user, show_default="the OS user")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would happen; nothing changes.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask at a terminal.")]

Act = Callable[[Runtime, Order], Done]


def _help(name: str, says: str, ref: str, reason: str, more: str = "") -> str:
    given = {"name": name, "ref": ref, "reason": reason}
    return f"{says}\n\n\b\nExamples:\n{LOOK_FIRST.format(**given)}{DO_IT.format(**given, more=more)}"


COMPLETE = _help(
    "complete-task",
    "Say that a task did its work, whatever it reported. Its gates are not waited for.",
    "night-7/api/build",
    "worker crashed",
    " --verify-output dist/api.whl",
)
FAIL = _help(
    "fail-task",
    "Give a task up, whatever retries it has left; its command is stopped.",
    "night-7/api/build",
    "hangs for an hour",
)
RESET = _help(
    "reset-task",
    "Try a task again from the beginning: a new task takes its place; what was given up because of it comes back too.",
    "night-7/api/build",
    "the disk is no longer full",
    " --clear-retry-count",
)
UNBLOCK = _help(
    "unblock-task",
    "Let a task go on without what it still waits for.",
    "night-7/api/deploy",
    "verified by hand",
)
SKIP = _help(
    "skip-step",
    "Leave a step (a task) out: whatever waits for it goes on without it.",
    "night-7/api/docs",
    "not needed tonight",
)
FAIL_WORKSTREAM = _help(
    "fail-workstream",
    "Give a workstream up: its tasks are cancelled, what it left is archived.",
    "night-7/api",
    "beyond repair",
)
VALIDATE = _help(
    "validate-workstream",
    "Let a workstream whose tasks have all ended be validated and land, though not all of them completed. Pause it "
    "first (`interlock fire REF pause --by WHO`): one whose last task ends without completing fails at once.",
    "night-7/api",
    "the failed task was optional",
)
ROLL_BACK = _help(
    "rollback-patch",
    "Take a committed patch back by a compensation plan, or tell that it was reverted by hand (--commit-sha): either "
    "way the gates that it had passed must pass again. The same as `interlock patch roll-back`, with --dry-run.",
    "night-7/api/fix^1",
    "regression in billing",
    " --plan plan.json\n"
    "  interlock override rollback-patch night-7/api/fix^1 --reason 'reverted by hand' --commit-sha 1a2b3c4",
)
DROP = _help(
    "drop-patch",
    "Discard a patch that is quarantined, or that could not be applied. A mended one is a new patch. The same as "
    "`interlock patch drop`, with --dry-run.",
    "night-7/api/fix^1",
    "superseded by fix^2",
)
RESET_BREAKER = _help(
    "reset-breaker",
    "Close a circuit breaker at once, whatever its cooldown. The same as `interlock breaker reset`, with --dry-run.",
    "circuit_breaker/pytest",
    "the disk is no longer full",
)


@dataclass(frozen=True)
class Wanted:
    """What every override is told on the command line."""

    by: str
    reason: str
    dry_run: bool = False
    yes: bool = False
    as_json: bool = False


def carry_out(act: Act, wanted: Wanted) -> None:
    """Carry out an override and tell of it; at a terminal, show what would happen and ask first."""
    with Client() as client:
        if sys.stdin.isatty() and not (wanted.dry_run or wanted.yes or wanted.as_json):
            _tell(act(client.runtime, Order(wanted.by, wanted.reason, dry_run=True)))
            typer.confirm("Do it?", abort=True)
        done = act(client.runtime, Order(wanted.by, wanted.reason, dry_run=wanted.dry_run))
    if wanted.as_json:
        print_json(asdict(done))
    else:
        _tell(done)


def _tell(done: Done) -> None:
    say = partial(console.print, highlight=False, soft_wrap=True)
    verb = "[yellow]would move[/]" if done.dry_run else "[green]moved[/]"
    for move in done.moves:
        over = f", passing over {', '.join(move.passed_over)}" if move.passed_over else ""
        say(f"{verb} {escape(move.instance)}: {move.from_state} → [bold]{move.to_state}[/] ({move.trigger}){over}")
    for line in done.notes:
        say(f"  {escape(line)}")
    if done.follows:
        say("then follows by itself:")
    for line in done.follows:
        say(f"  {escape(line)}")
    if done.dry_run:
        say("[yellow]dry run[/]: nothing was changed")
    elif not (done.moves or done.notes):
        say("nothing to do")


def _simple(act: Callable[[Runtime, str, Order], Done]) -> Callable[..., None]:
    def command(
        ref: Ref, by: By, reason: Reason, dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False
    ) -> None:
        carry_out(
            lambda runtime, order: act(runtime, ref, order),
            Wanted(by, reason, dry_run=dry_run, yes=yes, as_json=as_json),
        )

    return command


@app.command("complete-task", help=COMPLETE)
def complete_task_(
    ref: Ref,
    by: By,
    reason: Reason,
    verify_output: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A file it wrote: it must be there; its SHA-256 is kept.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Complete a task."""
    carry_out(
        lambda runtime, order: complete_task(runtime, ref, order, output=verify_output),
        Wanted(by, reason, dry_run=dry_run, yes=yes, as_json=as_json),
    )


app.command("fail-task", help=FAIL)(_simple(fail_task))


@app.command("reset-task", help=RESET)
def reset_task_(
    ref: Ref,
    by: By,
    reason: Reason,
    clear_retry_count: Annotated[bool, typer.Option("--clear-retry-count", help="It may retry as often anew.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Reset a task."""
    carry_out(
        lambda runtime, order: reset_task(runtime, ref, order, clear_retry_count=clear_retry_count),
        Wanted(by, reason, dry_run=dry_run, yes=yes, as_json=as_json),
    )


app.command("unblock-task", help=UNBLOCK)(_simple(unblock_task))
app.command("skip-step", help=SKIP)(_simple(skip_step))
app.command("fail-workstream", help=FAIL_WORKSTREAM)(_simple(fail_workstream))
app.command("validate-workstream", help=VALIDATE)(_simple(validate_workstream))


@app.command("rollback-patch", help=ROLL_BACK)
def rollback_patch_(
    ref: Ref,
    by: By,
    reason: Reason,
    plan: PlanFile = None,
    mended: Mended = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Roll a patch back."""
    wanted = read_plan_file(plan) if plan else None
    with ending_well():
        carry_out(
            lambda runtime, order: override_roll_back(runtime, ref, order, wanted, mended),
            Wanted(by, reason, dry_run=dry_run, yes=yes, as_json=as_json),
        )


app.command("drop-patch", help=DROP)(_simple(drop_patch))
app.command("reset-breaker", help=RESET_BREAKER)(_simple(reset_breaker))
override_list.register(app)
