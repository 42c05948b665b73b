"""`interlock metrics`: serve or show the metrics that Prometheus scrapes."""

import contextlib
import sys
from typing import Annotated

import typer

from interlock.cli.lib.options import Port, port_of
from interlock.cli.lib.output import AsJson, print_json, print_table, say
from interlock.workers.operations import metrics_server
from interlock.workers.operations.metrics import METRICS, read
from interlock.workers.runtime import Runtime
from interlock.workers.settings import settings

DEFAULT_PORT = 9464

app = typer.Typer(
    name="metrics",
    help="Metrics for Prometheus: counters, gauges and histograms, read from PostgreSQL.",
    no_args_is_help=True,
)


@app.command("serve")
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default: INTERLOCK_HOST.")] = None,
    port: Port = None,
) -> None:
    """Serve `/metrics` for Prometheus. `interlock up` does this too, as its part `metrics`.

    All values are read from PostgreSQL at each scrape, so one exporter is enough for any number of workers; more than
    one does no harm. By default it listens on INTERLOCK_HOST and INTERLOCK_METRICS_PORT (9464).

    \b
    Examples:
      interlock metrics serve
      interlock metrics serve --host 0.0.0.0 --port 9464
    """
    chosen = settings()
    metrics_server.serve(chosen, host or chosen.host, port_of(port, chosen.metrics_port, DEFAULT_PORT), say)


@app.command("show")
def show(
    listed: Annotated[bool, typer.Option("--list", help="List the metrics without their values.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the current value of every metric, in Prometheus's text format.

    \b
    Examples:
      interlock metrics show | grep ^entity_state
      interlock metrics show --json
      interlock metrics show --list          the meaning of each metric
    """
    if listed:
        rows = [
            {"name": each.name, "kind": each.kind, "labels": list(each.labels), "help": each.help} for each in METRICS
        ]
        if not print_json(rows, as_json):
            shown = [row | {"labels": ", ".join(row["labels"])} for row in rows]
            print_table("metrics", shown, ("name", "kind", "labels", "help"))
        return
    runtime = Runtime(settings())
    with contextlib.closing(runtime):
        if as_json:
            print_json(_series(runtime))
        else:
            sys.stdout.write(metrics_server.shown(runtime))


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
