"""Plays sequences in the SCXML form, in the interpreter of python-statemachine.

That interpreter waits for a delayed event before it goes on. The delayed sends are therefore taken out of the document,
and the event of a deadline is sent by the player.
"""

import re
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Listed
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from statemachine.io.loader import load

from interlock.workflows.definition import Definition
from interlock.workflows.forms.forms import FORMS
from interlock.workflows.forms.parts import deadline_acts_itself
from tests.conformance.sequences import Answer, Sequence, Step

DELAYED = re.compile(r"<send event=\"deadline\.[^>]*/>|<cancel sendid=[^>]*/>|</?on(entry|exit)>")
SETTLED = {True: "approval.granted", False: "approval.refused"}
STATUSES = {"applied": "applied", "waiting": "waiting", "superseded": "superseded"}


def seen(answer: Answer) -> Answer:
    """What of an answer this form says: not which guards are missing, which triggers are legal, which deadline runs."""
    return replace(answer, missing=(), legal=(), timer=None)


class InScxml:
    """The exported documents in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def play(self, played: Listed[Sequence]) -> Iterator[tuple[Answer, ...]]:
        """The answers to each sequence; those of a definition stand together."""
        form = FORMS["scxml"]
        for definition, group in groupby(played, lambda each: each.definition):
            path = self._directory / form.file_name(definition)
            path.write_text(DELAYED.sub("", form.write(definition)), encoding="utf-8")
            chart = load(path)
            data = vars(chart().model)  # python-statemachine 3.2 sets a document's data for its first instance only
            for each in group:
                yield _play(chart, data, each)


def _play(chart: Any, data: Mapping[str, Any], one: Sequence) -> tuple[Answer, ...]:
    running = chart()
    vars(running.model).update(data)
    answers, state = [], one.definition.initial
    for step, expected in zip(one.steps, one.answers, strict=True):
        if running.is_terminated:  # it takes no more events
            refused = expected.status in ("rejected", "superseded")
            answers.append(seen(expected) if refused else Answer("ended", state))
            continue
        event, said_with = _event(one.definition, state, step)
        running.send(event, **said_with)
        (state,) = running.configuration_values
        said = running.model.answer
        status = STATUSES.get(said, "rejected")
        code = {"applied": None, "waiting": "approval"}.get(said, said)
        answers.append(Answer(status, state, code))
    return tuple(answers)


def _event(definition: Definition, state: str, step: Step) -> tuple[str, dict[str, Any]]:
    holds = dict(step.holds)
    if step.kind == "settle":
        return f"{SETTLED[step.granted]}.{step.trigger}", {**holds, "held_at": step.at_version}
    if step.kind == "elapse" and deadline_acts_itself(definition, state):
        return f"deadline.{state}", {}
    return step.trigger, {**holds, "authority": step.authority}
