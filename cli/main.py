"""`interlock`: compose the commands, run one, and turn what goes wrong into one line and an exit code.

0: done. 1: failed (the database is down, a server did not start). 2: refused (illegal, unknown, malformed).
"""

import logging
import sys

import typer
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from cli import (
    archive,
    audit,
    backups,
    breakers,
    compensation,
    crew,
    definitions,
    jobs,
    metrics,
    operations,
    operators,
    overrides,
    patches,
    playbooks,
    quarantine,
    regression,
    runs,
    servers,
    stuck,
    supervision,
    triggers,
)
from cli.output import FAILED, REFUSED, fail
from workers import logs
from workflows.errors import InterlockError

app = typer.Typer(
    name="interlock",
    help="Durable state machines for software agents, on Celery and PostgreSQL.\n\n"
    "No illegal move, no lost trigger, no rewritten history. Start with `interlock up --detach`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
servers.register(app)
triggers.register(app)
operations.register(app)
runs.register(app)
stuck.register(app)
backups.register(app)
app.add_typer(definitions.app, name="definitions")
app.add_typer(audit.app, name="audit")
app.add_typer(archive.app, name="archive")
app.add_typer(playbooks.app, name="playbook")
app.add_typer(patches.app, name="patch")
app.add_typer(breakers.app, name="breaker")
app.add_typer(crew.app, name="worker")
app.add_typer(supervision.supervise, name="supervise")
app.add_typer(jobs.app, name="job")
app.add_typer(overrides.app, name="override")
app.add_typer(operators.app, name="operator")
app.add_typer(compensation.app, name="compensation")
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(regression.app, name="regression")
app.add_typer(metrics.app, name="metrics")


def main() -> None:
    """Run the command line."""
    sys.exit(run())


def run() -> int:
    """Run the command line; its exit code."""
    as_json = "--json" in sys.argv
    logs.configure(logging.WARNING)  # to standard error: standard output is for answers
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except InterlockError as error:
        return fail(type(error).__name__, str(error), REFUSED if error.refused else FAILED, as_json=as_json)
    except (DBAPIError, PoolTimeout) as error:
        return fail("DatabaseError", _database(error), FAILED, as_json=as_json)
    except (RedisError, BrokerError) as error:
        message = f"the broker does not answer: {error}. Triggers can still be fired; they are applied later."
        return fail("BrokerError", message, FAILED, as_json=as_json)
    except KeyboardInterrupt:
        return 130  # as shells report SIGINT
    return 0


def _database(error: DBAPIError | PoolTimeout) -> str:
    reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    if state == "42P01":
        return f"the database has no Interlock schema ({reason}). Run `interlock migrate`."
    if state and not state.startswith(("08", "57P", "28")):
        return f"the database refused: {reason}"
    return f"the database does not answer: {reason}. Check `interlock status` and DATABASE_URL."


if __name__ == "__main__":
    main()
