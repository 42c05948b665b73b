"""Writes the beginning of a machine and its test: commented, working, to be changed."""

import importlib.util
import keyword
import re
from pathlib import Path
from string import Template

from interlock.workflows.catalogue import SHIPPED
from interlock.workflows.errors import BadInput
from interlock.workflows.output.suggestions import offered

NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")

MACHINE = Template('''\
"""${title}: say here in one sentence what this machine is for."""

from interlock import Case, Deadline, Definition, Effect, EffectCall, Guard, T, effect
from pydantic import BaseModel, Field


class Context(BaseModel, extra="forbid"):
    """What an instance is given when it is created. It does not change afterwards; an unknown key is refused."""

    subject: str = Field(min_length=1, max_length=200, description="What it is about.")


class Start(BaseModel, extra="forbid"):
    """What whoever fires `start` has to say."""

    priority: int = Field(3, ge=1, le=5, description="1 is the most urgent.")


class Result(BaseModel, extra="forbid"):
    """What the effect returns: the data of `succeed`."""

    summary: str


# An effect is work outside the database. A worker calls it after the commit of the move that asks for it, and again if
# it raises or its worker dies. So it runs at least once: pass `call.idempotency_key` to whatever you call.
@effect("${name}_work", retries=3, timeout=600)
def work(call: EffectCall[Context, Start]) -> Result:
    """Do the work."""
    call.heartbeat({"step": "begun"})  # kept for `interlock effect show`; raises if the work has become pointless
    return Result(summary=f"worked on {call.instance.context.subject}")


# A guard decides whether a move may be made. It is a pure function: no clock, no network, no database.
def _is_planned(case: Case[Context, Start]) -> bool:
    return case.metadata.priority > 1 or case.by == "ann"


planned = Guard("planned", _is_planned, "only ann may start something that has priority 1")

# The machine: its moves, as a table. `interlock definitions graph FILE` draws it.
${constant} = Definition(
    type="${name}",
    version="1.0.0",  # instances keep theirs: a changed machine is a new version (interlock definitions diff)
    summary="Say here in one sentence what this machine is for.",
    states=("ready", "working", "done", "failed"),
    initial="ready",
    terminal=frozenset({"done", "failed"}),
    context=Context,
    data={"start": Start, "succeed": Result},
    transitions=(
        # trigger, from, to; who may fire it (default: anyone), guards, effects
        T("start", "ready", "working", when=(planned,), effects=(Effect("${name}_work", "succeed", "fail"),)),
        T("cancel", "ready", "failed"),
        T("succeed", "working", "done", by="effect"),
        T("fail", "working", "failed", by="effect", severity="error"),
        T("expire", "working", "failed", by="machinery", severity="warning"),
    ),
    # Whatever waits needs a deadline, or it may wait for ever.
    deadlines={"working": Deadline(3600, "expire")},  # seconds
)

# What Interlock looks for in the modules of INTERLOCK_DEFINITIONS.
WORKFLOWS = {("${name}", "1.0.0"): ${constant}}
''')

TEST = Template('''\
"""What ${name} does with its triggers, without a server: deciding is a pure function."""

from typing import Any

from interlock import Case, check, decide

from ${name} import ${constant}

CONTEXT = {"subject": "an example"}


def decided(state: str, trigger: str, data: dict[str, Any] | None = None, by: str = "bob") -> Any:
    return decide(${constant}, Case(state, 0, CONTEXT, trigger, by, data or {}))


def fired(state: str, trigger: str, data: dict[str, Any] | None = None, by: str = "bob") -> str:
    """The state that a trigger leads to; fails with the reason if it is refused."""
    outcome = decided(state, trigger, data, by)
    assert hasattr(outcome, "dest"), outcome.reason["message"]
    return str(outcome.dest)


def refused(state: str, trigger: str, data: dict[str, Any] | None = None, by: str = "bob") -> Any:
    """Why a trigger is refused; fails if it is not."""
    outcome = decided(state, trigger, data, by)
    assert hasattr(outcome, "reason"), f"it led to {outcome.dest}"
    return outcome.reason


def test_the_machine_is_sound() -> None:
    assert check(${constant}) == []


def test_it_works_and_is_done() -> None:
    assert fired("ready", "start") == "working"
    assert fired("working", "succeed", {"summary": "well"}) == "done"


def test_what_fails_or_takes_too_long_has_failed() -> None:
    assert fired("working", "fail") == "failed"
    assert fired("working", "expire") == "failed"


def test_only_ann_starts_what_is_urgent() -> None:
    assert refused("ready", "start", {"priority": 1})["missing"] == ["planned"]
    assert fired("ready", "start", {"priority": 1}, by="ann") == "working"


def test_what_is_done_stays_done() -> None:
    assert refused("done", "start")["code"] == "no_such_transition"


def test_wrong_data_is_refused_with_the_field() -> None:
    assert refused("ready", "start", {"prority": 1})["wrong"] == [
        "data of 'start': prority is no field (did you mean priority?)"
    ]
''')


def write(name: str, folder: Path) -> list[Path]:
    """Write a machine and its test.

    Args:
        name: of the machine, its type and its module.
        folder: where; nothing in it is overwritten.

    Returns:
        The files: `NAME.py` and `test_NAME.py`.

    Raises:
        BadInput: the name cannot be one, or one of the files exists. Nothing was written.
        OSError: the folder cannot be written to.
    """
    _require_name(name)
    terms = {"name": name, "title": name.replace("_", " ").capitalize(), "constant": name.upper()}
    texts = {folder / f"{name}.py": MACHINE, folder / f"test_{name}.py": TEST}
    for path in texts:
        if path.exists() or path.is_symlink():
            raise BadInput(f"{path.name} exists already, and is not overwritten: choose another name or folder")
    if importlib.util.find_spec(name) is not None:
        raise BadInput(f"Python finds a module {name!r} already, which this one would hide: choose another name")
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text.substitute(terms))
    return [*texts]


def _require_name(name: str) -> None:
    if not NAME.fullmatch(name) or keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise BadInput(
            f"{name[:60]!a} cannot name a machine and its module: lower-case letters, digits and _, at most 50, the "
            "first a letter, and no word of Python's own"
        )
    if name in {each.type for each in SHIPPED}:
        raise BadInput(f"Interlock has a type {name!r} of its own: choose another name")


AFTER_A_CHANGE = (
    "nodes keep the code that they have loaded: after a change, interlock down, then interlock up. A version that was "
    "loaded once stays as it is: raise it; or, in a home to throw away, begin again: interlock down --purge --yes"
)


def next_steps(name: str) -> list[str]:
    """The commands to go on with."""
    return [
        offered("definitions", "check", f"{name}.py"),
        offered("definitions", "graph", f"{name}.py"),
        f"pytest test_{name}.py",
        f"export PYTHONPATH=. INTERLOCK_DEFINITIONS={name}",
        offered("up", detach=True),
        offered("create", name, "first", context='{"subject": "an example"}'),
        offered("fire", f"{name}/first", "start", by="ann"),
    ]
