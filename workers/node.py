"""`python -m interlock.workers.node worker|beat|flower|metrics …`: the parts of `interlock up`, with few imports.

The first three run as `celery -A interlock.workers.main:app …` runs them, but for its banner, with some of its options.
`celery` imports all its commands, those of a shell and of a screen among them, asks every installed package for more,
and knows a hundred options: 0.2 s for each part, and 12 MB in all. `metrics` is `interlock metrics serve`.
"""

# ruff: noqa: PLC0415 - what one part alone needs is imported there
import logging
import sys
from argparse import ArgumentParser

from celery.concurrency import get_implementation
from celery.utils.nodenames import host_format

from interlock.workers.main import app
from interlock.workers.settings import settings
from interlock.workers.telemetry import logs


def main() -> None:
    """Run what the command line names until a signal ends it; never returns."""
    name, *words = sys.argv[1:]
    sys.exit({"worker": _worker, "beat": _beat, "flower": _flower, "metrics": _metrics}[name](words))


def _worker(words: list[str]) -> int:
    parser = ArgumentParser("worker")
    parser.add_argument("-n", dest="hostname", type=host_format, required=True)
    parser.add_argument("-Q", dest="queues", required=True)
    parser.add_argument("--pool", dest="pool_cls", type=get_implementation, default="prefork")
    parser.add_argument("-c", dest="concurrency", type=int)
    parser.add_argument("-E", dest="task_events", action="store_true")
    parser.add_argument("--without-gossip", action="store_true")
    parser.add_argument("--without-mingle", action="store_true")
    parser.add_argument("--heartbeat-interval", type=int)
    parser.add_argument("--loglevel", default="INFO")
    node = app.Worker(**vars(parser.parse_args(words)), quiet=True, no_color=True)
    node.start()
    return node.exitcode or 0


def _beat(words: list[str]) -> None:
    parser = ArgumentParser("beat")
    parser.add_argument("--schedule", required=True)
    parser.add_argument("--loglevel", default="INFO")
    app.Beat(**vars(parser.parse_args(words)), quiet=True, no_color=True).run()


def _flower(words: list[str]) -> None:
    from interlock.workers.operations import flower

    flower.run(app, words)


def _metrics(words: list[str]) -> None:
    from interlock.workers.operations import metrics_server

    parser = ArgumentParser("metrics")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    logs.configure(logging.WARNING)
    metrics_server.serve(settings(), **vars(parser.parse_args(words)))


if __name__ == "__main__":
    main()
