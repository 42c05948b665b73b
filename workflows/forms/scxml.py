"""A definition as SCXML (W3C Recommendation, 1 September 2015), with the ECMAScript data model."""

import re
from collections.abc import Iterable
from xml.etree import ElementTree as Xml

from interlock.workflows.definition import Definition, Transition
from interlock.workflows.forms import parts

HEAD = """
 {type} {version}: {summary}
 Made by `interlock definitions export`, of {type}@{version}, as scxml.

 The host sends a trigger with the data `authority`, which it has proved, and a boolean for each condition by its name.
 `answer` is then `applied`, `waiting` or why it was refused. An approval that is decided is told by the event
 `approval.granted.TRIGGER` or `approval.refused.TRIGGER`, with the data `held_at`: the `version` at which it was asked
 for. Comments name what the host carries out after a move, and the deadlines whose trigger it fires itself, because
 they are guarded.
"""


def scxml(definition: Definition) -> str:
    """An SCXML document with one definition.

    Args:
        definition: its machine.

    Returns:
        XML. Conditions use comparisons, `&&` and `||` only, which Python's interpreters read, too.
    """
    root = Xml.Element(
        "scxml",
        xmlns="http://www.w3.org/2005/07/scxml",
        version="1.0",
        name=definition.type,
        initial=definition.initial,
        datamodel="ecmascript",
    )
    summary = parts.one_line(definition.summary)
    _comment(root, HEAD.format(type=definition.type, version=definition.version, summary=summary))
    model = Xml.SubElement(root, "datamodel")
    for name, value in (("version", "0"), ("answer", "''"), *((_held(each), "-1") for each in _asking(definition))):
        Xml.SubElement(model, "data", id=name, expr=value)
    for state in definition.states:
        _add_state(root, definition, state)
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _comment(body: Xml.Element, text: str) -> None:
    """Add a comment; `--` would end it, and XML allows it in none."""
    body.append(Xml.Comment(re.sub("-(?=-)", "- ", text)))


def _asking(definition: Definition) -> tuple[str, ...]:
    return tuple(dict.fromkeys(move.trigger for move in definition.transitions if move.approval))


def _held(trigger: str) -> str:
    return f"held_{trigger}"


def _add_state(root: Xml.Element, definition: Definition, state: str) -> None:
    legal = definition.legal(state)
    if not legal:
        Xml.SubElement(root, "final", id=state)
        return
    body = Xml.SubElement(root, "state", id=state)
    _add_deadline(body, definition, state)
    for trigger in legal:
        _add_refusal(body, trigger, "not_yours", _closed(definition, trigger))
        for move in definition.moves[trigger, state]:
            _add_move(body, move, state)
        _add_refusal(body, trigger, "guard")
    for trigger in definition.triggers:
        if trigger not in legal:
            _add_refusal(body, trigger, "not_yours", _closed(definition, trigger))
            _add_refusal(body, trigger, "no_such_transition")
    for trigger in _asking(definition):
        _add_settling(body, definition, trigger, state)
    _add_refusal(body, "*", "unknown_trigger")


def _add_deadline(body: Xml.Element, definition: Definition, state: str) -> None:
    if (deadline := definition.deadlines.get(state)) is None:
        return
    event, seconds = f"deadline.{state}", parts.seconds(deadline)
    if not parts.deadline_acts_itself(definition, state):
        _comment(body, f" {deadline.trigger} after {seconds:g} s: fired by the host ")
        return
    id_ = f"deadline_{state}"
    Xml.SubElement(Xml.SubElement(body, "onentry"), "send", event=event, delay=f"{seconds:g}s", id=id_)
    Xml.SubElement(Xml.SubElement(body, "onexit"), "cancel", sendid=id_)
    for move in definition.moves.get((deadline.trigger, state), ()):
        _added(body, move, event, state, ())


def _add_move(body: Xml.Element, move: Transition, source: str) -> None:
    conditions = _conditions(move)
    if not move.approval:
        _added(body, move, move.trigger, source, conditions)
        return
    held = f"{_held(move.trigger)} == version"
    _add_refusal(body, move.trigger, "already_held", _all([*conditions, held]))
    asked = _transition(body, move.trigger, _all(conditions))
    _assign(asked, _held(move.trigger), "version")
    _assign(asked, "answer", "'waiting'")
    who = ", ".join(move.approval.deciders) or "anyone but the author"
    _comment(asked, f" ask for an approval by {move.approval.quorum} of {who} ")


def _add_settling(body: Xml.Element, definition: Definition, trigger: str, state: str) -> None:
    granted, refused, held = f"approval.granted.{trigger}", f"approval.refused.{trigger}", _held(trigger)
    current = ["_event.data.held_at == version", f"{held} == version"]
    for move in definition.moves.get((trigger, state), ()):
        if move.approval:
            _assign(_added(body, move, granted, state, [*current, *_conditions(move)]), held, "-1")
    _assign(_add_refusal(body, granted, "guard", _all(current)), held, "-1")
    _add_refusal(body, granted, "superseded")
    _assign(_add_refusal(body, refused, "approval", f"_event.data.held_at == {held}"), held, "-1")
    _add_refusal(body, refused, "approval")


def _conditions(move: Transition) -> list[str]:
    return [f"_event.data.{name}" for name in parts.conditions(move)]


def _added(body: Xml.Element, move: Transition, event: str, source: str, conditions: Iterable[str]) -> Xml.Element:
    """A move; one that stays in its state has no target, so that its deadline runs on."""
    made = _transition(body, event, _all(conditions))
    if move.dest != source:
        made.set("target", move.dest)
    _assign(made, "version", "version + 1")
    _assign(made, "answer", "'applied'")
    for each in (
        *(f"effect {effect.name}" for effect in move.effects),
        *(f"fire {e.trigger} on its {e.role}" for e in move.then),
    ):
        _comment(made, f" {parts.one_line(each)} ")
    if move.relink:
        _comment(made, f" changes its link {parts.one_line(move.relink.role)} ")
    return made


def _add_refusal(body: Xml.Element, event: str, code: str, condition: str | None = "") -> Xml.Element:
    """A transition that only says why; none where the condition is None."""
    made = Xml.Element("transition") if condition is None else _transition(body, event, condition)
    _assign(made, "answer", f"'{code}'")
    return made


def _transition(body: Xml.Element, event: str, condition: str) -> Xml.Element:
    return Xml.SubElement(body, "transition", {"event": event} | ({"cond": condition} if condition else {}))


def _assign(made: Xml.Element, location: str, value: str) -> None:
    Xml.SubElement(made, "assign", location=location, expr=value)


def _all(conditions: Iterable[str]) -> str:
    return " && ".join(conditions)


def _closed(definition: Definition, trigger: str) -> str | None:
    """The condition that a trigger is not open to whoever fires it; None: it is open to anyone."""
    allowed = definition.authorities[trigger]
    if "anyone" in allowed:
        return None
    return _all(f"_event.data.authority != '{each}'" for each in allowed)
