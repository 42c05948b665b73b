"""`interlock override`: moves that operators make by hand, bypassing guards."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.lib.options import sharing
from interlock.cli.lib.overriding import Act, OverrideOptions, Ref, carried_out, overriding
from interlock.cli.operations import override_list
from interlock.cli.patches.compensation import Mended, PlanFile, read_plan_file
from interlock.workers.operations.rollback import override_roll_back
from interlock.workers.overrides.circuit_breakers import reset_breaker
from interlock.workers.overrides.reset_task import reset_task, skip_step
from interlock.workers.overrides.tasks import complete_task, fail_task, unblock_task
from interlock.workers.overrides.transaction import Done, OverrideOrder
from interlock.workers.overrides.workstreams_and_patches import drop_patch, fail_workstream, validate_workstream
from interlock.workers.runtime import Runtime
from interlock.workers.system.ended_by import ended_by

HELP = """Move an instance by hand. An override makes only moves that the machine has, but bypasses their guards;
terminal states stay terminal. Only operators may override (`interlock operator --help`). Each move is an event of
severity `warning`, with operator and reason.

\b
Exit code: 0 done (or, with --dry-run, possible), 2 refused: nothing was changed, 1 failed.
"""
app = typer.Typer(no_args_is_help=True, help=HELP)


def _simple(act: Callable[[Runtime, str, OverrideOrder], Done], message: str, ref: str, reason: str) -> None:
    """Add an override without options of its own, under its function's name; `ref` and `reason` are its example's."""

    def command(ref: Ref) -> Act:
        return lambda runtime, order: act(runtime, ref, order)

    name = act.__name__.replace("_", "-")
    example = f"interlock override {name} {ref} --reason '{reason}'"
    examples = f"\n\n\b\nExamples:\n  {example} --dry-run\n  {example}\n"
    app.command(name, help=message + examples)(overriding(command))


@app.command("complete-task")
@overriding
def complete_task_(
    ref: Ref,
    verify_output: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A file the task wrote: it must exist; its SHA-256 is stored.")
    ] = None,
) -> Act:
    """Mark a task as completed, whatever it reported. Its gates are not awaited.

    \b
    Examples:
      interlock override complete-task night-7/api/build --reason 'worker crashed' --dry-run
      interlock override complete-task night-7/api/build --reason 'worker crashed' --verify-output dist/api.whl
    """
    return lambda runtime, order: complete_task(runtime, ref, order, output=verify_output)


_simple(
    fail_task,
    "Fail a task, even if it has retries left; its command is stopped.",
    "night-7/api/build",
    "hangs for an hour",
)


@app.command("reset-task")
@overriding
def reset_task_(
    ref: Ref,
    clear_retry_count: Annotated[
        bool, typer.Option("--clear-retry-count", help="Give the new task its full number of retries.")
    ] = False,
) -> Act:
    """Run a task again as a new task in its place. Tasks that were cancelled and gates that failed because of it are
    made anew as well.

    \b
    Examples:
      interlock override reset-task night-7/api/build --reason 'the disk is no longer full' --dry-run
      interlock override reset-task night-7/api/build --reason 'the disk is no longer full' --clear-retry-count
    """
    return lambda runtime, order: reset_task(runtime, ref, order, clear_retry_count=clear_retry_count)


_simple(
    unblock_task,
    "Let a task proceed without the dependencies it still waits for.",
    "night-7/api/deploy",
    "verified by hand",
)
_simple(
    skip_step,
    "Leave a task or step out: everything that waits for it proceeds without it.",
    "night-7/api/docs",
    "not needed tonight",
)
_simple(
    fail_workstream,
    "Fail a workstream: its tasks are cancelled, and its remaining work is archived.",
    "night-7/api",
    "beyond repair",
)
_simple(
    validate_workstream,
    "Validate and land a workstream whose tasks have all ended, even if some did not complete. Pause it first "
    "(`interlock fire REF pause --by WHO`): otherwise it fails as soon as its last task ends without completing.",
    "night-7/api",
    "the failed task was optional",
)


@app.command("rollback-patch")
@sharing(OverrideOptions, ended_by()(carried_out))
def rollback_patch_(ref: Ref, plan: PlanFile = None, mended: Mended = None) -> Act:
    """Roll a committed patch back with a compensation plan, or record that it was reverted by hand (--commit-sha).
    Either way the gates that it passed must pass again. The same as `interlock patch roll-back`, plus --dry-run.

    \b
    Examples:
      interlock override rollback-patch night-7/api/fix^1 --reason 'regression in billing' --dry-run
      interlock override rollback-patch night-7/api/fix^1 --reason 'regression in billing' --plan plan.json
      interlock override rollback-patch night-7/api/fix^1 --reason 'reverted by hand' --commit-sha 1a2b3c4
    """
    wanted = read_plan_file(plan) if plan else None
    return lambda runtime, order: override_roll_back(runtime, ref, order, wanted, mended)


_simple(
    drop_patch,
    "Discard a patch that is quarantined or could not be applied. A corrected version is a new patch. The same as "
    "`interlock patch drop`, plus --dry-run.",
    "night-7/api/fix^1",
    "superseded by fix^2",
)
_simple(
    reset_breaker,
    "Close a circuit breaker at once, even during its cooldown. The same as `interlock breaker reset`, plus --dry-run.",
    "circuit_breaker/pytest",
    "the disk is no longer full",
)
app.command("list")(override_list.list_)
