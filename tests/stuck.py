"""Find stuck instances, and run the command suggested for them."""

import shlex
from typing import Any
from uuid import UUID

import psycopg

from interlock.workers.operations.stuck.detector import Stuck, survey
from interlock.workers.runtime import Runtime
from tests.cli.terminal import Answer, Shell, Terminal
from tests.driving import drain_all


def look(runtime: Runtime, **how: Any) -> list[Stuck]:
    """The instances stuck now, longest first."""
    return survey(runtime, **how)[1]


def found(runtime: Runtime, ref: UUID | str, **how: Any) -> Stuck:
    """The report on one instance, by entity id or id; it must be stuck."""
    answers = look(runtime, **how)
    (answer,) = [each for each in answers if ref in (each.workflow_id, each.entity_id)]
    return answer


def terminal(runtime: Runtime, **more: str) -> Terminal:
    """A terminal for commands in a runtime's installation."""
    chosen = runtime.settings
    urls = {"DATABASE_URL": str(chosen.database_url), "BROKER_URL": str(chosen.broker_url)}
    return Terminal(chosen.home, urls | more, shell=Shell())


def paste(runtime: Runtime, command: str, **words: str) -> Answer:
    """Run a suggested command, with `words` for its placeholders, and let the engine apply what follows.

    `--wait` is left out, because here the engine is driven by hand.
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
    """Move an instance's last change `seconds` into the past."""
    dba.execute(
        "UPDATE workflow_instances SET updated_at = now() - make_interval(secs => %s) WHERE id = %s", (seconds, ref)
    )
