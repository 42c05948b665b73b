"""docs/leads-on.md: for each state of each machine and each part that can die there, what leads on, and how soon.

Nothing here lists states. Each rule derives its answers from a definition (deadlines, effects, who may fire what, where
instances rest), the settings, the sweeps' periods, and what `interlock stuck` says. `NoWayOn`: a state has no answer.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from docs.stuck_samples import sample
from interlock.beat.heartbeats import GONE
from interlock.beat.schedule import BY_NAME as SWEEPS
from interlock.beat.schedule import OVERDUE_SECONDS
from interlock.db.orchestration.claim_triggers import GIVEN_BACK
from interlock.supervisor.processes.process import LONGEST_DELAY
from interlock.workers.broker.wakeups import FLAG_MILLISECONDS
from interlock.workers.effects import intents
from interlock.workers.operations.stuck.detector import thresholds, why
from interlock.workers.operations.stuck.words import span
from interlock.workers.orchestration.scheduler import NEXT_STEP_OF
from interlock.workers.pool.celery_pool import BEATS, SOON_SECONDS
from interlock.workers.settings import Settings
from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import BY_NAME, Authority, Definition, Effect
from interlock.workflows.machines.delivery.approval import APPROVAL
from interlock.workflows.machines.orchestration.link_guards import landing_approved
from interlock.workflows.output.suggestions import ME

SCHEDULED = (*NEXT_STEP_OF, "run")  # what the scheduler moves
ITS_EFFECTS = {"test_gate": intents.RUN, "workstream": intents.LAND}  # those that the scheduler asks for
LOOKS = ("show", "stuck", "doctor", "worker list", "worker show", "breaker show")  # commands that change nothing


class NoWayOn(Exception):
    """A state from which nothing leads on when a part dies: add a deadline, a rule of `stuck`, or let it rest."""


@dataclass(frozen=True, slots=True)
class Lead:
    """What leads on from a state when a part has died there.

    Attributes:
        part: what died, or who never comes.
        answer: what leads on.
        seconds: within what time; None: nothing is owed, because the instance may stay there.
    """

    part: str
    answer: str
    seconds: float | None


Rule = Callable[[Definition, str, Settings], Iterator[Lead]]


def leads(definition: Definition, state: str, settings: Settings) -> list[Lead]:
    """What leads on from a state, for each part that can die there.

    Raises:
        NoWayOn: for one of them, nothing does.
    """
    return [lead for rule in RULES for lead in rule(definition, state, settings)]


def _person(definition: Definition, state: str, settings: Settings) -> Iterator[Lead]:
    """Whoever should fire a trigger never does; or what it waits for never ends."""
    if not definition.deadlines.get(state) and set(definition.legal(state)) == set(_by(definition, state, "effect")):
        return  # only an effect's outcome moves it
    if deadline := definition.deadlines.get(state):
        own = f", after its own `{deadline.context_key}` if it has one" if deadline.context_key else ""
        seconds = deadline.seconds + deadline.grace_seconds + SWEEPS["dispatch"].every_seconds
        yield Lead("whoever should move it", f"its deadline fires `{deadline.trigger}`{own}", seconds)
    elif state in definition.resting:
        yield Lead("whoever should move it", "it may stay there: nobody is owed anything", None)
    else:
        moves = _by(definition, state, "machinery") if definition.type in SCHEDULED else []
        soon = f"the scheduler fires {_any_of(moves)} once what it waits for allows; else " if moves else ""
        if definition.type == "task" and _by(definition, state, "holder"):
            soon = f"any worker that fits claims it; {soon}"
        yield _stuck("whoever should move it", definition, state, settings, soon)


def _holder(definition: Definition, state: str, settings: Settings) -> Iterator[Lead]:
    """The worker or agent that holds it, or that it is."""
    part = "the worker or agent that runs it" if definition.type == "task" else "its process"
    reports = [each for each in _by(definition, state, "holder") if BY_NAME.isdisjoint(definition.authorities[each])]
    if owed := _owed(definition, state, settings):
        trigger, seconds = owed
        within = seconds + SWEEPS["heartbeats"].every_seconds
        yield Lead(part, f"its heartbeats stop, and the sweep `heartbeats` fires `{trigger}`", within)
    elif reports and definition.type != "task" and state not in (*definition.deadlines, *definition.resting):
        yield _stuck(part, definition, state, settings, f"nobody else can fire {_any_of(reports)}: ")


def _owed(definition: Definition, state: str, settings: Settings) -> tuple[str, float] | None:
    """What is fired once the heartbeats of who holds it, or of itself, have stopped, and after how many seconds."""
    silence = {
        GIVEN_BACK: settings.silent_seconds,
        "health_check_timeout": settings.silent_seconds,
        "worker_crashed": settings.silent_seconds,
        GONE: settings.recovery_seconds,
    }
    return next(((each, after) for each, after in silence.items() if each in definition.legal(state)), None)


def _effect(definition: Definition, state: str, settings: Settings) -> Iterator[Lead]:
    """The process that carries out the effect by whose outcome it leaves the state, its machine, or its command."""
    outcomes = _by(definition, state, "effect")
    if not outcomes:
        return
    again = settings.effect_lease_seconds + SWEEPS["leases"].every_seconds
    effect = next((each for each in _effects(definition, state) if _tells(each, definition, state)), None)
    if effect is None:
        raise NoWayOn(f"no effect tells {_any_of(outcomes)} of a {definition.type} that is {state}")
    last = (
        f"after {settings.max_attempts} attempts `{effect.failed}` is fired"
        if effect.failed in definition.legal(state)
        else f"after {settings.max_attempts} attempts `interlock stuck` names it, with `interlock redrive`"
    )
    yield Lead(
        "the process or node that runs its effect",
        f"what takes its place, or a worker at its next heartbeat, sees that its pid is gone, and gives `{effect.name}`"
        " to another process",
        max(LONGEST_DELAY + SOON_SECONDS, settings.heartbeat_seconds / BEATS),
    )
    yield Lead(
        "the machine that runs its effect",
        f"the lease of `{effect.name}` ends, and the sweep `leases` gives it to another node; {last}",
        again,
    )
    if effect is intents.RUN:
        yield Lead(
            "the gate's own process", f"the node that started it sees its end and reports {_any_of(outcomes)}", 1.0
        )


def _command(definition: Definition, state: str, _settings: Settings) -> Iterator[Lead]:
    """The command that a worker started."""
    if definition.type == "task" and GIVEN_BACK in definition.legal(state):
        yield Lead("the task's own process", "the worker that started it sees its end and reports it", 1.0)


def _trial(definition: Definition, state: str, settings: Settings) -> Iterator[Lead]:
    """Whoever makes the trial call of a half-open breaker."""
    if definition.type != "circuit_breaker" or state in definition.deadlines:
        return
    if {"success", "failure"} <= {*definition.legal(state)}:
        seconds = max(settings.breaker_trial_seconds, settings.silent_seconds + SWEEPS["heartbeats"].every_seconds)
        answer = (
            "the trial ends with the task's claim, or after its own time, and the next caller gets it; if tasks wait"
            f" and nobody calls, `interlock stuck` names the breaker {span(settings.stuck_due_seconds)} later"
        )
        yield Lead("whoever makes the trial call", answer, seconds)


def _decider(definition: Definition, state: str, _settings: Settings) -> Iterator[Lead]:
    """The people who decide the approval that a trigger is held for."""
    held = [move.trigger for move in definition.transitions if move.approval and state in move.sources]
    if held:
        deadline = APPROVAL.deadlines[APPROVAL.initial]
        answer = f"the approval that holds {_any_of(held)} ends by `{deadline.trigger}`, and the trigger is rejected"
        yield Lead("who may decide its approval", answer, deadline.seconds + SWEEPS["dispatch"].every_seconds)


def _approver(definition: Definition, state: str, _settings: Settings) -> Iterator[Lead]:
    """The approvers of its phase, of whom one has to approve that it lands."""
    if any(landing_approved in move.when and state in move.sources for move in definition.transitions):
        deadline = APPROVAL.deadlines[APPROVAL.initial]
        answer = (
            f"the approval of its landing ends by `{deadline.trigger}`, and the scheduler fires `validation_failed`"
        )
        yield Lead("who may approve that it lands", answer, deadline.seconds + SWEEPS["dispatch"].every_seconds)


def _beat(definition: Definition, state: str, _settings: Settings) -> Iterator[Lead]:
    """Beat, which has the deadline's trigger woken."""
    if state in definition.deadlines:
        answer = (
            "the supervisor starts it again, and any other beat does as well; `interlock doctor` says so if none ran"
            f" for {span(OVERDUE_SECONDS)}. The deadline is a row, and is only late"
        )
        yield Lead("beat", answer, LONGEST_DELAY)


def _scheduler(definition: Definition, state: str, _settings: Settings) -> Iterator[Lead]:
    """The process that derives what follows from the moves of others."""
    if definition.type in SCHEDULED and _by(definition, state, "machinery"):
        answer = "what moved is kept in `run_signals`, and the sweep `dispatch` wakes another process that reads it"
        yield Lead(
            "the process that runs the scheduler", answer, SWEEPS["dispatch"].every_seconds + FLAG_MILLISECONDS / 1000
        )


def _node(_definition: Definition, _state: str, _settings: Settings) -> Iterator[Lead]:
    """The node that applies triggers, and the relay, which passes on events."""
    flag = FLAG_MILLISECONDS / 1000
    answer = "its transaction is rolled back; the request is still there, and the sweep `dispatch` wakes another node"
    yield Lead("the node that applies its triggers", answer, flag + SWEEPS["dispatch"].every_seconds)
    yield Lead("the relay", "nothing waits for it; it continues after the last event that it passed on", 0.0)


ALIKE: tuple[Rule, ...] = (_node, _scheduler, _beat)  # their answers are the same in all states
RULES: tuple[Rule, ...] = (_person, _holder, _effect, _command, _trial, _decider, _approver, *ALIKE)


def _stuck(part: str, definition: Definition, state: str, settings: Settings, before: str = "") -> Lead:
    """`interlock stuck` names it, with a command that leads on."""
    limits, facts = thresholds(settings), sample(definition, state)
    nobody_can = facts.details.get("able") == 0 and state == "queued"
    seconds = limits.due if nobody_can else limits.own.get((definition.type, state), limits.general)
    if seconds is None:
        raise NoWayOn(f"{definition.type} {definition.version} may stay {state} for ever: its limit is switched off")
    command = why(facts).command
    if problem := useless(command, definition, state):
        if not _owed(definition, state, settings):
            raise NoWayOn(f"{definition.type} {definition.version} that is {state}: `{command}` {problem}")
        before = f"{before}it works as long as its heartbeats come; whoever ends its process leads it on as below. "
    command = command.replace(ME, "YOU")
    return Lead(part, f"{before}`interlock stuck` names it, with `{command}`", seconds)


def useless(command: str, definition: Definition, state: str, ref: str = "ID") -> str:
    """Why an offered command leads nowhere; empty if it leads on.

    Looking is enough only where something else moves: what the scheduler moves, or what waits for other instances.

    Args:
        command: as `interlock stuck` offers it.
        definition, state: of the stuck instance.
        ref: by what the command names it.
    """
    words = shlex.split(command)
    if any(words[1 : 1 + look.count(" ") + 1] == look.split() for look in LOOKS):
        return "" if definition.type in SCHEDULED or definition.links else "only looks, and nothing else moves it"
    if words[1] != "fire":
        return ""
    trigger = words[3]
    if words[2] == ref and trigger not in definition.legal(state):
        return f"fires what is not legal in {state}"
    if words[2] == ref and BY_NAME.isdisjoint(definition.authorities[trigger]):
        return f"fires what a person may not: {trigger} is for {_any_of(definition.authorities[trigger])}"
    return ""


def _by(definition: Definition, state: str, authority: Authority) -> list[str]:
    """The triggers that lead out of the state and are for this authority."""
    found = (move.trigger for move in definition.transitions if state in move.sources and authority in move.authorities)
    return list(dict.fromkeys(found))


def _effects(definition: Definition, state: str) -> Iterator[Effect]:
    if state == definition.initial:
        yield from definition.birth_effects
    for move in definition.transitions:
        if move.dest == state:
            yield from move.effects
    if definition.type in ITS_EFFECTS:
        yield ITS_EFFECTS[definition.type]


def _tells(effect: Effect, definition: Definition, state: str) -> bool:
    """Whether the effect is the one that the state waits for: it may tell an outcome there, or it only acts."""
    told = {effect.done, effect.failed} - {None}
    return not told or not told.isdisjoint(definition.legal(state))


def _any_of(triggers: Iterable[str]) -> str:
    return " or ".join(f"`{each}`" for each in triggers)


def leads_on_tables() -> str:
    """What holds in all states, then a table for the newest version of each machine."""
    settings = Settings.model_construct()
    known = catalogue()
    newest = [each for each in known if each is known.newest[each.type]]
    return "\n\n".join([_everywhere(newest, settings), *(_table(each, settings) for each in newest)])


def _everywhere(definitions: Iterable[Definition], settings: Settings) -> str:
    """The parts on which the states depend alike, each with the number of states where it can die."""
    found = Counter(
        lead
        for each in definitions
        for state in _waiting(each)
        for rule in ALIKE
        for lead in rule(each, state, settings)
    )
    lines = [
        "### In all machines",
        "",
        "| if this dies | in how many states | what leads on | within |",
        "|---|---|---|---|",
    ]
    lines += [f"| {lead.part} | {number} | {lead.answer} | {_within(lead)} |" for lead, number in found.items()]
    return "\n".join(lines)


def _table(definition: Definition, settings: Settings) -> str:
    lines = [f"### {definition.type} {definition.version}", "", "| state | if this dies | what leads on | within |"]
    lines.append("|---|---|---|---|")
    for state in _waiting(definition):
        alike = {lead for rule in ALIKE for lead in rule(definition, state, settings)}
        for lead in leads(definition, state, settings):
            if lead not in alike:
                lines.append(f"| `{state}` | {lead.part} | {lead.answer} | {_within(lead)} |")
    return "\n".join(lines)


def _waiting(definition: Definition) -> list[str]:
    """The states that are no end."""
    return [state for state in definition.states if state not in definition.terminal]


def _within(lead: Lead) -> str:
    return "" if lead.seconds is None else span(lead.seconds)
