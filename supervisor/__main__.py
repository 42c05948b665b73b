"""`python -m interlock.supervisor`: the supervisor on its own, as `interlock up --detach` and the tests start it."""

import argparse
import contextlib
import json
import os
import shlex
import sys
from typing import TextIO

from interlock.supervisor.processes.importing import without_collections

with without_collections():
    from interlock.supervisor.environment import UMASK
    from interlock.supervisor.home import home_of
    from interlock.supervisor.processes.log import line, logged, narrator
    from interlock.supervisor.processes.loop import supervise
    from interlock.supervisor.purge import purge
    from interlock.workers.settings import settings
    from interlock.workflows.errors import InterlockError


def main() -> int:
    """Supervise until asked to stop. Returns the exit code; an error is written to stderr and to `--report`."""
    os.umask(UMASK)
    options = _options().parse_args()
    report = os.fdopen(options.report, "w") if options.report is not None else None
    try:
        supervise(
            settings(),
            without=frozenset(filter(None, options.without.split(","))),
            prepare=shlex.split(options.prepare),
            watch=narrator(lambda part: print(logged(part), flush=True)),
            ready=lambda: _send_report(report, {"ready": True}),
            tether=options.tether,
        )
    except InterlockError as fault:
        print(line("gave_up", level="error", kind=type(fault).__name__, error=str(fault)), file=sys.stderr)
        _send_report(report, {"error": str(fault), "kind": type(fault).__name__, "refused": fault.refused})
        return 2 if fault.refused else 1
    finally:
        if options.ephemeral:
            with contextlib.suppress(InterlockError):  # the directory was refused as a home, which was reported above
                purge(home_of(settings()))
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m interlock.supervisor", description=__doc__)
    parser.add_argument("--without", default="", help="parts to leave out, separated by commas")
    parser.add_argument("--prepare", default="", help="command to run between the servers and the workers")
    parser.add_argument("--report", type=int, help="file descriptor to write to, once, whether all is ready")
    parser.add_argument("--tether", type=int, help="file descriptor of a pipe; stop when its other end closes")
    parser.add_argument("--ephemeral", action="store_true", help="delete the home's data at the end")
    return parser


def _send_report(report: TextIO | None, message: dict[str, object]) -> None:
    if report is not None:
        with report:
            report.write(json.dumps(message))


if __name__ == "__main__":
    sys.exit(main())
