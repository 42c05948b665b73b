"""Random sequences of triggers for any shipped definition, with the answers that `decide` gives.

A sequence is guided: most steps are legal where the instance is, and most facts are such that guards hold.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from interlock.workflows.decide import decide
from interlock.workflows.definition import AUTHORITIES, Authority, Definition, Guard
from interlock.workflows.guard_context import Case, Linked
from interlock.workflows.outcomes import Applied, Waiting
from tests.unit.cases import GOOD_METADATA, GOOD_ROW, favourable

PEOPLE = ("ann", "bob", "cid", "author")
ROLES = (
    "pull_request", "depends_on", "blocked_by_gates", "gates", "patches", "steps", "workers", "sprint", "stories",
    "tasks",
)  # fmt: skip
STATES = (
    "merged", "completed", "PASSED", "FAILED", "verified", "S_SUCCESS", "S_FAILED", "IDLE", "active", "done", "running",
    "quarantined",
)  # fmt: skip
SPRINTS = (*(Linked("sprint", str(each), "active", UUID(int=each)) for each in (1, 2)), Linked("sprint", "3", "done"))


@dataclass(frozen=True, slots=True)
class Step:
    """What is done to an instance.

    Attributes:
        kind: a trigger is fired, the deadline of its state passes, or what waits for an approval is settled.
        trigger, by, authority, metadata: as they are fired; of a settled one, as it was fired.
        linked, named, row: the facts at that moment.
        at_version: the version at which a settled trigger was held.
        granted: whether the approval was given.
        holds: name of a guard -> whether it holds.
    """

    kind: Literal["fire", "elapse", "settle"]
    trigger: str
    by: str
    authority: Authority
    metadata: Mapping[str, Any]
    linked: Mapping[str, tuple[Linked, ...]]
    named: Linked | None
    row: Mapping[str, Any]
    at_version: int = 0
    granted: bool = False
    holds: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a step: `missing` are the guards that refused it, `timer` is the deadline that runs after it."""

    status: str
    state: str
    code: str | None = None
    missing: tuple[str, ...] = ()
    legal: tuple[str, ...] = ()
    timer: str | None = None


@dataclass(frozen=True, slots=True)
class Sequence:
    """An instance of a definition, what is done to it, and the answers."""

    seed: int
    definition: Definition
    context: Mapping[str, Any]
    steps: tuple[Step, ...]
    answers: tuple[Answer, ...]


@dataclass(slots=True)
class Reference:
    """An instance, and what the engine does with it: `decide`, votes, held triggers and the deadline."""

    definition: Definition
    context: Mapping[str, Any]
    state: str = ""
    version: int = 0
    votes: dict[str, set[str]] = field(default_factory=dict)
    held: list[Step] = field(default_factory=list)
    timer: str | None = None

    def __post_init__(self) -> None:
        self.state = self.definition.initial
        self._arm()

    def case(self, step: Step) -> Case:
        """What is decided for a step."""
        held = any((each.trigger, each.at_version) == (step.trigger, self.version) for each in self.held)
        return Case(
            state=self.state,
            version=self.version,
            context=self.context,
            trigger=step.trigger,
            by=step.by,
            metadata=step.metadata,
            bound_version=step.at_version if step.kind == "settle" else None,
            granted=step.kind == "settle",
            linked=step.linked,
            named=step.named,
            votes=frozenset(self.votes.get(step.trigger, ())),
            held=held and step.kind != "settle",
            row=step.row,
        )

    def answer(self, step: Step) -> Answer:
        """Do a step."""
        if step.kind == "elapse":
            self.timer = None
        if step.kind == "settle":
            held = (step.trigger, step.at_version)
            self.held = [each for each in self.held if (each.trigger, each.at_version) != held]
            if not step.granted:
                return self._refused("rejected", "approval")
        elif step.trigger not in self.definition.triggers:
            return self._refused("rejected", "unknown_trigger")
        elif not {step.authority, "anyone"} & {*self.definition.authorities[step.trigger]}:
            return self._refused("rejected", "not_yours")
        outcome = decide(self.definition, self.case(step))
        if isinstance(outcome, Applied):
            self._move(step, outcome)
            return Answer("applied", self.state, timer=self.timer)
        if isinstance(outcome, Waiting):
            self.held.append(step)
        status, reason = type(outcome).__name__.lower(), outcome.reason
        return self._refused(status, reason["code"], tuple(reason.get("missing", ())))

    def _refused(self, status: str, code: str, missing: tuple[str, ...] = ()) -> Answer:
        legal = self.definition.legal(self.state) if status == "rejected" else ()
        return Answer(status, self.state, code, missing, legal, self.timer)

    def _move(self, step: Step, outcome: Applied) -> None:
        entered = outcome.dest != self.state
        if entered:
            self.votes.clear()
        else:
            self.votes.setdefault(step.trigger, set()).add(step.by)
        self.state, self.version = outcome.dest, self.version + 1
        if entered or self.timer is None:
            self._arm()

    def _arm(self) -> None:
        deadline = self.definition.deadlines.get(self.state)
        self.timer = deadline and deadline.trigger


def guards(definition: Definition) -> dict[str, Guard]:
    """Name -> each guard of a definition."""
    return {guard.name: guard for move in definition.transitions for guard in move.when}


PLAYED = ("kind", "trigger", "by", "authority", "at_version", "granted", "holds")


def as_json(one: Sequence) -> dict[str, Any]:
    """A sequence for a form that cannot run guards: whether they hold is said."""
    steps = [{name: getattr(step, name) for name in PLAYED} for step in one.steps]
    return {"context": dict(one.context), "steps": steps}


def read_answer(said: Mapping[str, Any]) -> Answer:
    """The answer of such a form."""
    missing, legal = tuple(said.get("missing", ())), tuple(said.get("legal", ()))
    return Answer(said["status"], said["state"], said.get("code"), missing, legal, said.get("timer"))


def sequence(definition: Definition, seed: int, length: int = 20, alone: Mapping[str, Any] | None = None) -> Sequence:
    """The random sequence of a definition that belongs to a seed; it ends soon after the instance has ended.

    Args:
        definition: its machine.
        seed: equal seeds give equal sequences.
        length: the most steps.
        alone: the context of an instance without links, whose triggers are fired by right; default: anything.
    """
    chance = random.Random(f"{definition.type}@{definition.version}:{seed}")
    instance = Reference(definition, _context(chance) if alone is None else alone)
    named, steps, answers = guards(definition), [], []
    for _ in range(chance.randint(1, length)):
        step = _step(instance, chance)
        step = _with_facts(step, instance, chance) if alone is None else _by_right(step, definition)
        case = instance.case(step)
        at_version = step.at_version if step.kind == "settle" else instance.version
        step = _replaced(
            step, at_version=at_version, holds={name: bool(each.holds(case)) for name, each in named.items()}
        )
        steps.append(step)
        answers.append(instance.answer(step))
        if not definition.legal(instance.state) and not instance.held and chance.random() < 0.5:
            break
    return Sequence(seed, definition, instance.context, tuple(steps), tuple(answers))


def _replaced(step: Step, **changed: Any) -> Step:
    values = {name: getattr(step, name) for name in Step.__slots__}
    return Step(**(values | changed))


def _step(instance: Reference, chance: random.Random) -> Step:
    definition, state = instance.definition, instance.state
    dice = chance.random()
    if instance.held and dice < 0.35:
        held = chance.choice(instance.held)
        return _replaced(held, kind="settle", granted=chance.random() < 0.75)
    if instance.timer and dice < 0.5:
        return Step("elapse", instance.timer, "system", "machinery", {}, {}, None, {})
    legal = definition.legal(state)
    trigger = chance.choice((*definition.triggers, "fly"))
    if legal and dice < 0.9:
        onward = [
            each for each in legal if any(m.dest not in definition.terminal for m in definition.moves[each, state])
        ]
        trigger = chance.choice(onward if onward and chance.random() < 0.7 else legal)
    allowed = definition.authorities.get(trigger, ("anyone",))
    authority = chance.choice(allowed if chance.random() < 0.9 else AUTHORITIES)
    return Step("fire", trigger, chance.choice(PEOPLE), authority, _metadata(chance), {}, None, {})


def _by_right(step: Step, definition: Definition) -> Step:
    """The step by an authority that its trigger is open to, with data that a client may send."""
    if step.kind != "fire":
        return step
    authority = definition.authorities.get(step.trigger, ("anyone",))[0]
    data = {key: value for key, value in step.metadata.items() if value != " "}
    return _replaced(step, authority=authority, metadata=data)


def _with_facts(step: Step, instance: Reference, chance: random.Random) -> Step:
    """The step with facts: in every other case such that its guards hold."""
    if chance.random() < 0.5:
        good = favourable(instance.definition, instance.state, step.trigger)
        metadata = good.metadata if step.kind == "fire" else step.metadata
        return _replaced(
            step, row={**good.row, "owner": step.by}, linked=good.linked, named=good.named, metadata=metadata
        )
    row = {key: _perhaps(chance, good, _another(key, chance)) for key, good in GOOD_ROW.items()}
    linked = {role: _linked(chance) for role in ROLES if chance.random() < 0.8}
    return _replaced(step, row=row, linked=linked, named=chance.choice((None, *SPRINTS)))


def _perhaps(chance: random.Random, good: Any, other: Any) -> Any:
    return good if chance.random() < 0.6 else other


def _another(key: str, chance: random.Random) -> Any:
    match key:
        case "tasks":
            return []
        case "frozen":
            return chance.random() < 0.5
        case "landing_approval":
            return {"state": chance.choice(("pending", "approved"))}
        case "owner":
            return chance.choice(PEOPLE)
    return chance.randint(0, 3)


def _linked(chance: random.Random) -> tuple[Linked, ...]:
    state = chance.choice(STATES)
    others = (state, state, chance.choice(STATES))
    return tuple(
        Linked("any", str(number), chance.choice(others), UUID(int=number)) for number in range(chance.randint(0, 2))
    )


def _metadata(chance: random.Random) -> dict[str, Any]:
    said = {key: good for key, good in GOOD_METADATA.items() if chance.random() < 0.9}
    if chance.random() < 0.3:
        said["exit_code"] = chance.choice((1, "0", True, None))
    return said | ({"reason": " "} if chance.random() < 0.1 else {})


def _context(chance: random.Random) -> dict[str, Any]:
    said: dict[str, Any] = {"task_description": "build"} if chance.random() < 0.9 else {}
    optional: dict[str, Any] = {
        "author": "author",
        "quorum": chance.randint(1, 3),
        "deciders": ["ann", "bob"],
        "task_count": chance.randint(0, 3),
        "expected_exit_codes": [0, 1],
        "required_capabilities": ["git", chance.choice(("python", "rust"))],
        "capabilities": ["git"],
        "worker_count": chance.randint(1, 2),
        "timeout_sec": 60,
        "cooldown_seconds": 5.5,
    }
    return said | {key: value for key, value in optional.items() if chance.random() < 0.4}
