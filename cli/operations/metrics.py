"""`interlock metrics`: what Prometheus scrapes, served or shown."""

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.output import AsJson, console, print_json, print_table
from workers import exposition
from workers.metrics import METRICS, read
from workers.runtime import Runtime
from workers.settings import settings

SERVE_HELP = """Serve `/metrics` for Prometheus. `interlock up` does this too, as its part `metrics`.

Everything is read from PostgreSQL at each scrape, so one exporter is enough however many workers there are, and several
do no harm. It listens on INTERLOCK_HOST and INTERLOCK_METRICS_PORT (9464) unless told otherwise.

\b
Examples:
  interlock metrics serve
  interlock metrics serve --host 0.0.0.0 --port 9464
"""
SHOW_HELP = """Show every metric as it stands, in Prometheus's own text form.

\b
Examples:
  interlock metrics show | grep ^entity_state
  interlock metrics show --json
  interlock metrics show --list          what each metric means
"""
DEFAULT_PORT = 9464

app = typer.Typer(
    name="metrics", help="What Prometheus scrapes: counters and gauges, read from PostgreSQL.", no_args_is_help=True
)


@app.command("serve", help=SERVE_HELP)
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; unset: INTERLOCK_HOST.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = None,
) -> None:
    """Serve until told to stop."""
    chosen = settings()
    runtime = Runtime(chosen)
    if port is None:
        port = DEFAULT_PORT if chosen.metrics_port is None else chosen.metrics_port
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.closing(runtime), exposition.listening(runtime, host or chosen.host, port) as server:
        console.print(exposition.url(server), soft_wrap=True, highlight=False)
        if path := os.environ.get("INTERLOCK_READY_FILE"):
            Path(path).touch()
        server.serve_forever()


@app.command("show", help=SHOW_HELP)
def show(
    listed: Annotated[bool, typer.Option("--list", help="The metrics there are, without their values.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show once."""
    if listed:
        rows = [
            {"name": each.name, "kind": each.kind, "labels": list(each.labels), "says": each.says} for each in METRICS
        ]
        if as_json:
            print_json(rows)
        else:
            shown = [row | {"labels": ", ".join(row["labels"])} for row in rows]
            print_table("metrics", shown, ("name", "kind", "labels", "says"))
        return
    runtime = Runtime(settings())
    with contextlib.closing(runtime):
        if as_json:
            print_json(_series(runtime))
        else:
            sys.stdout.write(exposition.shown(runtime))


def _series(runtime: Runtime) -> list[dict[str, object]]:
    labels = {each.name: each.labels for each in METRICS}
    return [
        {"name": name, "labels": dict(zip(_labels(name, labels), values, strict=True)), "value": value}
        for (name, values), value in sorted(read(runtime).items())
    ]


def _labels(name: str, labels: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    if name in labels:
        return labels[name]
    base, _, part = name.rpartition("_")
    return (*labels[base], "le") if part == "bucket" else labels[base]
