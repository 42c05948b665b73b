"""A machine as a page draws it: the kinds of its states, its graph, and which triggers the visitor may fire."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from interlock.workers.access.tokens import Principal
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.definition import Authority, Definition
from interlock.workflows.errors import UnknownWorkflow
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

BAD = ("error", "critical", "warning")
PEOPLE: Mapping[str, Collection[Authority]] = {  # role -> the rights that its holder's name may have
    "read-only": (),
    "agent": ("anyone", "decider"),
    "operator": ("anyone", "decider", "operator"),
    "admin": ("anyone", "decider", "operator"),
}


def kind_of(definition: Definition, state: str) -> str:
    """How a state is coloured, beside its name: `good`, `bad`, `wait`, `busy` or none."""
    into = [move for move in definition.transitions if move.dest == state and state not in move.sources]
    if into and all(move.severity in BAD for move in into):
        return "bad" if state in definition.terminal else "wait"
    if state in definition.terminal:
        return "good"
    return "" if state in definition.resting or state == definition.initial else "busy"


def kinds(catalogue: Catalogue, rows: Collection[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """(type, state) -> the kind, of instances; one of a machine that is not known here has none."""
    found = {}
    for type_, state in {(each["workflow_type"], each["current_state"]) for each in rows}:
        try:
            found[type_, state] = kind_of(catalogue.get(type_), state)
        except UnknownWorkflow:
            found[type_, state] = ""
    return found


def graph(definition: Definition) -> dict[str, Any]:
    """The machine for `diagram.js`: nodes, and an edge for each two states, with the triggers that lead from one to the
    other. A node's title names the triggers that stay there."""
    between: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for move in definition.transitions:
        for source in set(move.sources) - {move.dest}:
            between[source, move.dest].append(
                move.trigger + (" ‖" if move.approval else "") + (" ?" if move.when else "")
            )
    nodes = [
        {"id": each, "label": each, "kind": kind_of(definition, each), "title": _title(definition, each)}
        for each in definition.states
    ]
    edges = [{"from": source, "to": to, "label": "\n".join(said)} for (source, to), said in between.items()]
    return {"nodes": nodes, "edges": edges}


def _title(definition: Definition, state: str) -> str:
    stay = [move.trigger for move in definition.transitions if state in move.sources and move.dest == state]
    return f"{state}; {', '.join(stay)} stay here" if stay else state


@dataclass(frozen=True, slots=True)
class Offer:
    """A trigger of an instance's machine.

    Attributes:
        trigger: its name.
        to: the states that it may lead to from here.
        who: who may fire it.
        needs_reason: whether a guard asks for one.
        approval: whether it is held for an approval.
        why_not: why the visitor cannot fire it now; "": it can be tried.
        legal: whether the state accepts it.
    """

    trigger: str
    to: tuple[str, ...]
    who: tuple[str, ...]
    needs_reason: bool
    approval: bool
    why_not: str
    legal: bool


def offers(definition: Definition, shown: Mapping[str, Any], visitor: Principal) -> Iterator[Offer]:
    """Every trigger of an instance's machine.

    Args:
        definition: of the instance.
        shown: what `Client.show` says of it.
        visitor: who looks.
    """
    for trigger in definition.triggers:
        moves = definition.moves.get((trigger, shown["current_state"]), ())
        who = tuple(shown["may"].get(trigger, definition.authorities[trigger]))
        yield Offer(
            trigger,
            tuple(dict.fromkeys(move.dest for move in moves)),
            who,
            any(reason_given in move.when for move in moves),
            any(move.approval is not None for move in moves),
            _why_not(definition, trigger, shown, who, visitor),
            bool(moves) and trigger in shown["legal"],
        )


def _why_not(
    definition: Definition, trigger: str, shown: Mapping[str, Any], who: tuple[str, ...], visitor: Principal
) -> str:
    if shown["archived_at"] is not None:
        return "it is archived"
    if shown["handover"] is not None:
        return f"the handover {shown['handover']} freezes it"
    if trigger not in shown["legal"]:
        sources = [source for name, source in definition.moves if name == trigger]
        return f"only from {', '.join(sources)}"
    if not set(who) & set(PEOPLE[visitor.role]):
        mine = (
            "your session is read-only"
            if visitor.role == "read-only"
            else f"your session is of the role {visitor.role}"
        )
        return f"who may: {', '.join(who)}; {mine}"
    return str(shown["missing"].get(trigger, ""))
