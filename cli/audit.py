"""`interlock audit`: prove that nothing was rewritten."""

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from cli.output import FAILED, AsJson, console, errors, print_json, print_table
from db import audit, history
from db.connect import transaction
from workers.client import Client

app = typer.Typer(help="Prove that history is whole and was not rewritten.", no_args_is_help=True)


@app.command()
def verify(as_json: AsJson = False) -> None:
    """Recompute every hash chain, look for gaps, check each move against its definition, and states against history.

    Exit code 0: all as it was written. 1: not; each finding names the instance and the event.
    """
    with Client() as client:
        with transaction(client.runtime.database) as connection:
            total = history.count(connection)
        columns = (
            SpinnerColumn(),
            TextColumn("verifying"),
            BarColumn(),
            TextColumn("{task.completed:,}/{task.total:,}"),
        )
        with Progress(*columns, console=errors, transient=True, disable=as_json) as progress:
            bar = progress.add_task("verify", total=total)
            verdict = audit.verify(client.runtime.database, lambda read: progress.update(bar, completed=read))
    if as_json:
        print_json(
            {
                "ok": verdict.ok,
                "instances": verdict.instances,
                "transitions": verdict.transitions,
                "problems": verdict.problems,
            }
        )
    else:
        says = "[green]ok[/]" if verdict.ok else f"[bold red]{verdict.found} problems[/]"
        console.print(f"{says}: {verdict.instances:,} instances, {verdict.transitions:,} events")
        if not verdict.ok:
            rows = [{"instance": each.instance, "seq": each.seq, "says": each.says} for each in verdict.problems]
            print_table("problems", rows, ("instance", "seq", "says"))
    raise typer.Exit(0 if verdict.ok else FAILED)
