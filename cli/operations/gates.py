"""`interlock gate`: gates are run again by hand."""

import typer

from interlock.cli.lib.overriding import Act, Ref, overriding
from interlock.workers.overrides.rerun_gate import rerun_gate

HELP = """Gates: the commands that judge a run's work. `interlock list --type test_gate --state failed` lists those that
failed.

\b
Exit code: 0 done (or, with --dry-run, possible), 2 refused: nothing was changed, 1 failed.
"""
app = typer.Typer(no_args_is_help=True, help=HELP)


@app.command()
@overriding
def rerun(ref: Ref) -> Act:
    """Run a failed gate again, once what was wrong outside is mended. The same command runs as a new gate, which takes
    the old one's place. Tasks that were cancelled or failed because of the gate are made anew. For operators.

    \b
    Examples:
      interlock gate rerun night-7/api/unit --reason 'the package index is back' --dry-run
      interlock gate rerun night-7/api/unit --reason 'the package index is back'
    """
    return lambda runtime, order: rerun_gate(runtime, ref, order)
