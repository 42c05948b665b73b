"""A definition whose effect has a limit key, as a user's module has it; its calls are counted by a receiver."""

import os
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from interlock.workers.effects.declared import EffectCall
from interlock.workflows.definition import Deadline, Definition, T
from interlock.workflows.effects import effect
from tests.small_machines import small_machine, tells

ran: list[str] = []


@effect("tests_limited", retries=50, timeout=30.0, key="server")
def limited(call: EffectCall) -> None:
    """Note that it ran; in a worker's process, call the receiver that RECEIVER names, which answers after a while."""
    ran.append(call.instance.entity_id)
    if receiver := os.environ.get("RECEIVER"):
        with urllib.request.urlopen(f"{receiver}/{call.instance.entity_id}", timeout=20) as answer:  # noqa: S310
            answer.read()


@effect("tests_limited_by_function", key=lambda context: context["server"] and f"server:{context['server']}")
def by_function(call: EffectCall) -> None:
    """Note that it ran."""
    ran.append(call.instance.entity_id)


def _copy(name: str, effect_name: str) -> Definition:
    return small_machine(
        name,
        "Something that a server does.",
        "waiting serving | served missed",
        *tells(effect_name, "waiting serve serving", done="served served", failed="missed missed"),
    )


COPY = _copy("copy", "tests_limited")
PRINT = _copy("print", "tests_limited_by_function")
STAMP = replace(
    COPY,
    type="stamp",
    transitions=(*COPY.transitions, T("expire", "serving", "missed", by="machinery")),
    deadlines={"serving": Deadline(3600, "expire")},
)
WORKFLOWS: Mapping[tuple[str, str], Definition] = {(each.type, each.version): each for each in (COPY, PRINT, STAMP)}
Context = Mapping[str, Any]
