"""Warnings about a plan that is valid but risky."""

import re
from collections.abc import Iterator

from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.tasks import Process

SECRETIVE = re.compile(r"TOKEN|PASSW|PASSPHRASE|SECRET|CREDENTIAL|KEY(?:_|$)", re.IGNORECASE)


def warnings(plan: Plan) -> list[str]:
    """One line for each variable that seems to be a secret and whose value is in the plan, with the full task name.

    Args:
        plan: settled or not.
    """
    named: dict[str, Process] = {"defaults": plan.defaults, **plan.tasks(), **plan.gates()}
    return [line for where, process in named.items() for line in _literal(where, process, plan)]


def _literal(where: str, process: Process, plan: Plan) -> Iterator[str]:
    for name, value in process.env.items():
        inherited = process is not plan.defaults and plan.defaults.env.get(name) == value
        if value and not inherited and SECRETIVE.search(name):
            yield f"{where}: env.{name} would lie in the database in clear: give a reference to it (env_from)"
