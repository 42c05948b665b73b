"""Look for what stands still, and paste the command that is given with it."""

import shlex
from typing import Any
from uuid import UUID

import psycopg

from tests.cli.terminal import Answer, Terminal
from tests.driving import drain_all
from workers.runtime import Runtime
from workers.stuck.look import Stuck, look


def found(runtime: Runtime, ref: UUID | str, **how: Any) -> Stuck:
    """What is said of one instance, by entity or id; it must be stuck."""
    answers = look(runtime, **how)
    (answer,) = [each for each in answers if ref in (each.workflow_id, each.entity_id)]
    return answer


def terminal(runtime: Runtime) -> Terminal:
    """Where somebody types what is to be done in a runtime's installation."""
    chosen = runtime.settings
    return Terminal(chosen.home, {"DATABASE_URL": str(chosen.database_url), "BROKER_URL": str(chosen.broker_url)})


def paste(runtime: Runtime, command: str, **words: str) -> Answer:
    """Run a command as it is given, `words` in place of its placeholders, and let the engine do what follows.

    `--wait` is left out: here the engine is driven by hand.
    """
    for placeholder, word in {"$(id -un)": "ann", "SOMEBODY_ELSE": "bob", **words}.items():
        command = command.replace(placeholder, word)
    program, *rest = shlex.split(command.replace(" --wait", ""))
    assert program == "interlock", command
    answer = terminal(runtime).run(*rest)
    assert answer.code == 0, (command, answer.said)
    drain_all(runtime)
    return answer


def age(dba: "psycopg.Connection[Any]", ref: UUID, seconds: float) -> None:
    """Let an instance have stood where it does for so long already."""
    dba.execute(
        "UPDATE workflow_instances SET updated_at = now() - make_interval(secs => %s) WHERE id = %s", (seconds, ref)
    )
