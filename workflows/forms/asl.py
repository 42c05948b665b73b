"""A definition in the Amazon States Language (https://states-language.net), for AWS Step Functions."""

import json
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

from interlock.workflows.definition import Definition, Transition
from interlock.workflows.errors import InvalidDefinition
from interlock.workflows.forms import parts
from interlock.workflows.output.suggestions import offered

SEND = "arn:aws:states:::sqs:sendMessage"
LONGEST_NAME = 80
State = dict[str, Any]
COMMENT = (
    "{summary} Made by `{command}`. Start it with the input "
    '{{"queue": URL, "context": {{}}}}. The host takes messages from that queue, and answers one with a token: with '
    '{{"trigger": NAME, "authority": WHO, "by": NAME, "conditions": {{NAME: true}}}} after it has proved who fires it, '
    'or with {{"granted": true}} for an approval.'
)
# The language wants an end: a machine that has none ends when its host answers {"stop": true}.
STOPPED = "execution stopped"
STOP = {"And": [{"Variable": "$.fired.stop", "IsPresent": True}, {"Variable": "$.fired.stop", "BooleanEquals": True}]}


def asl(definition: Definition) -> str:
    """A state machine of AWS Step Functions with one definition.

    Args:
        definition: its machine.

    Returns:
        JSON.

    Raises:
        InvalidDefinition: a name is too long for the language.
    """
    states = dict(_states(definition))
    if long := [name for name in states if len(name) > LONGEST_NAME]:
        raise InvalidDefinition(
            f"the Amazon States Language allows {LONGEST_NAME} characters for a state: shorten the names in {long[0]!r}"
        )
    command = offered("definitions", "export", parts.called(definition), format="asl")
    comment = COMMENT.format(summary=parts.one_line(definition.summary), command=command)
    body = {"Comment": comment, "StartAt": "begin", "States": states}
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def _states(definition: Definition) -> Iterator[tuple[str, State]]:
    begun = {"queue.$": "$.queue", "context.$": "$.context", "version": 0}
    births = [{"effect": each} for each in parts.effects(definition.birth_effects)]
    yield from _sent("begin", {"Type": "Pass", "Parameters": begun}, births, definition.initial)
    for state in definition.states:
        legal = definition.legal(state)
        if not legal:
            yield state, {"Type": "Succeed"}
            continue
        yield from _waiting(definition, state, legal)
        yield f"{state}: fired", _choice(definition, state, legal)
        for trigger in legal:
            for move in definition.moves[trigger, state]:
                yield from _move(definition, move, state)
    if not _ends(definition):
        yield STOPPED, {"Type": "Succeed"}


def _waiting(definition: Definition, state: str, legal: Sequence[str]) -> Iterator[tuple[str, State]]:
    """The state in which a trigger is awaited. Its deadline begins again when a trigger was refused."""
    body = _asked({"state": state, "legal": list(legal)}, "$.fired", f"{state}: fired")
    if state in definition.terminal:
        body["Comment"] = "terminal, with a way out"
    deadline = definition.deadlines.get(state)
    if deadline is None:
        yield state, body
        return
    elapsed = f"{state}: elapsed"
    body["TimeoutSeconds"] = max(1, ceil(parts.seconds(deadline)))
    body["Catch"] = [{"ErrorEquals": ["States.Timeout"], "ResultPath": "$.elapsed", "Next": elapsed}]
    yield state, body
    if parts.deadline_acts_itself(definition, state):
        fired = {"trigger": deadline.trigger, "authority": "machinery", "by": "system", "conditions": {}}
        yield elapsed, {"Type": "Pass", "Result": fired, "ResultPath": "$.fired", "Next": f"{state}: fired"}
    else:  # its conditions have to be looked up
        yield elapsed, _asked({"state": state, "elapsed": deadline.trigger}, "$.fired", f"{state}: fired")


def _choice(definition: Definition, state: str, legal: Sequence[str]) -> State:
    """Which move a fired trigger makes: the first whose conditions hold; none: the trigger is awaited again."""
    choices = [
        {"And": _holds(definition, move), "Next": _name(definition, move, state)}
        for trigger in legal
        for move in definition.moves[trigger, state]
    ]
    stop = [] if _ends(definition) else [STOP | {"Next": STOPPED}]
    return {"Type": "Choice", "Choices": [*stop, *choices], "Default": state}


def _ends(definition: Definition) -> bool:
    return not all(map(definition.legal, definition.states))


def _holds(definition: Definition, move: Transition) -> list[State]:
    tests: list[State] = [{"Variable": "$.fired.trigger", "StringEquals": move.trigger}]
    if not move.open_to("anyone"):
        by = [{"Variable": "$.fired.authority", "StringEquals": each} for each in move.authorities]
        tests.append({"Or": by} if len(by) > 1 else by[0])
    for guard in move.when:
        holds = f"$.fired.conditions.{guard.name}"
        tests += [{"Variable": holds, "IsPresent": True}, {"Variable": holds, "BooleanEquals": True}]
    return tests


def _name(definition: Definition, move: Transition, source: str) -> str:
    return f"{source}: {move.trigger} {definition.moves[move.trigger, source].index(move) + 1}"


def _move(definition: Definition, move: Transition, source: str) -> Iterator[tuple[str, State]]:
    name = _name(definition, move, source)
    counted: State = {"queue.$": "$.queue", "context.$": "$.context", "version.$": "States.MathAdd($.version, 1)"}
    note = {"severity": move.severity, "settles": move.settles, "event": move.event, "relink": parts.relink(move)}
    made = {"Type": "Pass", "Parameters": counted, "Comment": json.dumps({k: v for k, v in note.items() if v})}
    told = [{"effect": each} for each in parts.effects(move.effects)]
    told += [{"follow_up": each} for each in parts.follow_ups(move)]
    if (approval := parts.approval(move)) is None:
        yield from _sent(name, made, told, move.dest)
        return
    held, decided = f"{name} made", f"{name} decided"
    yield name, _asked({"state": source, "approval": {"trigger": move.trigger, **approval}}, "$.decision", decided)
    granted = {"Variable": "$.decision.granted", "BooleanEquals": True}
    yield decided, {"Type": "Choice", "Choices": [{**granted, "Next": held}], "Default": source}
    yield from _sent(held, made, told, move.dest)


def _sent(name: str, first: State, messages: Sequence[State], then: str) -> Iterator[tuple[str, State]]:
    """A state, then one for each message to the host, then `then`."""
    names = [f"{name} tells {number}" for number in range(1, len(messages) + 1)]
    yield name, first | {"Next": [*names, then][0]}
    for at, (each, message) in enumerate(zip(names, messages, strict=True)):
        body = _message(message) | {"version.$": "$.version"}
        yield (
            each,
            {
                "Type": "Task",
                "Resource": SEND,
                "Parameters": {"QueueUrl.$": "$.queue", "MessageBody": body},
                "ResultPath": None,
                "Next": [*names, then][at + 1],
            },
        )


def _asked(message: State, answer: str, then: str) -> State:
    """A state that asks the host, and waits until it answers with the token."""
    body = _message(message) | {"token.$": "$$.Task.Token", "version.$": "$.version"}
    return {
        "Type": "Task",
        "Resource": f"{SEND}.waitForTaskToken",
        "Parameters": {"QueueUrl.$": "$.queue", "MessageBody": body},
        "ResultPath": answer,
        "Next": then,
    }


def _message(message: State) -> State:
    return {"execution.$": "$$.Execution.Id", **message}
