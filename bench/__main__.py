"""`python -m bench`: run the benchmarks, print the table, write the results. See `--help`."""

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench import catalogue, machine, report
from bench.effort import FULL, QUICK, Effort
from bench.finding import Finding
from bench.progress import Rounds
from bench.stage import Stage, staged


def main() -> int:
    """Returns 0 if every measured bar was met, 1 if one was not, 130 if interrupted."""
    options = _options()
    effort = QUICK if options.quick else FULL
    effort = replace(effort, rounds=options.rounds or effort.rounds)
    console = Console()
    console.width = max(console.width, 100)  # a narrower table would lose its figures
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up as on Ctrl-C
    findings: list[Finding] = []
    try:
        with staged() as stage:
            described = machine.describe(stage.home.path, stage.servers.database_url, stage.servers.broker_url)
            findings = _run(stage, effort, options.only or list(catalogue.BENCHMARKS), console)
    except KeyboardInterrupt:
        console.print("interrupted; everything is stopped and removed")
        return 130
    report.show(console, described, findings)
    target = report.write(described, findings, also=options.json, effort="quick" if options.quick else "full")
    console.print(f"written to {target}", highlight=False, soft_wrap=True)
    return 1 if any(each.met is False for each in findings) else 0


def _run(stage: Stage, effort: Effort, names: list[str], console: Console) -> list[Finding]:
    findings: list[Finding] = []
    columns = (
        TextColumn("{task.description:10}"),
        BarColumn(20),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}"),
    )
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        for name in names:
            task = progress.add_task(name, total=effort.rounds, doing="preparing")
            rounds = Rounds(effort.rounds, progress, task)
            rounds.say("preparing")
            findings += catalogue.BENCHMARKS[name](stage, effort, rounds)
            progress.stop_task(task)
    return findings


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Ratios measured in one run, interleaved.")
    parser.add_argument("--quick", action="store_true", help="under two minutes, to see whether something broke")
    parser.add_argument(
        "--only", action="append", choices=list(catalogue.BENCHMARKS), metavar="NAME", help="repeat for several"
    )
    parser.add_argument("--rounds", type=int, help=f"rounds a benchmark (default {FULL.rounds}, quick {QUICK.rounds})")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results there as well")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
