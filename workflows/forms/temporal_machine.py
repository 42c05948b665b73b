"""A definition as a Temporal workflow, which the exported worker runs (docs/forms.md). Needs the package `temporalio`.

The update `fire` is a trigger: its validator refuses what can be refused at once, and a refusal that needs facts fails
the update. Deadlines are timers, effects are activities, approvals are child workflows of the machine `approval`,
and follow-ups are signals. `decide` decides, as in Interlock.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from interlock.workflows.decide import decide
from interlock.workflows.definition import Definition, Effect
from interlock.workflows.forms.parts import called, facts_needed
from interlock.workflows.forms.temporal_commands import carry_out, granted_by, look_up, relink, tell
from interlock.workflows.forms.temporal_state import Answer, TemporalState
from interlock.workflows.forms.temporal_values import (
    FactsFound,
    FactsWanted,
    LinkChange,
    TemporalEffect,
    TemporalFiring,
    TemporalHistory,
    TemporalPending,
    TemporalStart,
)
from interlock.workflows.outcomes import Applied, Rejected, Superseded, Waiting


class TemporalMachine:
    """An instance. A subclass names its definition, and has the method that Temporal runs, which calls `live`."""

    definition: ClassVar[Definition]

    @workflow.init
    def __init__(self, start: TemporalStart) -> None:
        self._at = TemporalState(self.definition, start, workflow.info().workflow_id, _now())
        self._lock = asyncio.Lock()  # triggers are decided one by one, though each may wait for facts
        self._tasks: set[asyncio.Task[None]] = set()
        self._awaited: set[asyncio.Task[None]] = set()  # of them, effects that tell an outcome

    async def live(self, start: TemporalStart) -> Answer:
        """Wait for triggers and deadlines until the instance has ended; returns its state, and what it settled."""
        if start.state is None:
            self._ask_effects(self.definition.birth_effects, TemporalFiring("create", start.by), None)
        await self._take_up(start)
        while not self._is_over():
            due = self._at.due_at
            timeout = None if due is None else max(due - _now(), 0.0)
            try:
                await workflow.wait_condition(self._changed_from(due), timeout=timeout)
            except TimeoutError:
                await self._elapse(due)
            if self._is_long():
                workflow.continue_as_new(self._at.snapshot())
        await workflow.wait_condition(workflow.all_handlers_finished)
        return {"state": self._at.state, "version": self._at.version, "settled": self._at.settled}

    @workflow.update
    async def fire(self, firing: TemporalFiring) -> Answer:
        """Fire a trigger; returns what became of it, `applied` or `waiting`. A refusal is an `ApplicationError`."""
        async with self._lock:
            return await self._take(firing)

    @fire.validator
    def admit(self, firing: TemporalFiring) -> None:
        """Refuse at once what needs no facts of other instances."""
        self._require_right(firing)
        if not self._lock.locked() and not self._needs(firing):  # if another is being decided, its move may matter
            outcome = decide(self.definition, self._at.case(firing, FactsFound(), None, False))
            if isinstance(outcome, Rejected | Superseded):
                raise _refused(outcome)

    @workflow.signal
    async def follow_up(self, firing: TemporalFiring) -> None:
        """A linked instance has moved, and asks for this trigger; a refusal is only noted."""
        await self._note(firing, None)

    @workflow.query
    def show(self) -> Answer:
        """The instance, and what became of the last trigger that was decided."""
        return self._at.shown()

    @workflow.query
    def history(self) -> TemporalHistory | None:
        """What Interlock's history said of the instance when it was handed over; Temporal has what came later."""
        return self._at.history

    # Deciding -----------------------------------------------------------------------------------------------------

    def _require_right(self, firing: TemporalFiring) -> None:
        if denied := self._at.refusal(firing):
            raise _refused(denied)

    def _needs(self, firing: TemporalFiring) -> list[str]:
        """What has to be looked up; nothing for a trigger that has no move here."""
        possible = (firing.trigger, self._at.state) in self.definition.moves
        return facts_needed(self.definition, firing.trigger) if possible else []

    async def _take(self, firing: TemporalFiring, bound_version: int | None = None, granted: bool = False) -> Answer:
        """Decide a trigger, under the lock; raises what refuses it."""
        self._require_right(firing)
        facts = FactsFound()
        if needs := self._needs(firing):
            name = called(self.definition)
            wanted = FactsWanted(self._at.id, name, self._at.context, firing.trigger, firing.data, needs)
            facts = await look_up(wanted)
        outcome = decide(self.definition, self._at.case(firing, facts, bound_version, granted))
        if isinstance(outcome, Applied):
            return self._move(firing, outcome, facts)
        if isinstance(outcome, Waiting):
            version = self._at.version
            child, terms = self._at.hold(firing, outcome.approval)
            self._spawn(self._await_approval(firing, version, child, TemporalStart(terms, firing.by)))
            return self._at.last
        raise _refused(outcome)

    async def _note(self, firing: TemporalFiring, bound_version: int | None, granted: bool = False) -> None:
        """Decide a trigger whose answer nobody waits for; `show` tells it."""
        async with self._lock:
            await self._try(firing, bound_version, granted)

    async def _try(self, firing: TemporalFiring, bound_version: int | None, granted: bool = False) -> None:
        try:
            await self._take(firing, bound_version, granted)
        except ApplicationError as refused:
            self._at.last = {"trigger": firing.trigger, **refused.details[0]}
            workflow.logger.warning("refused: %s", refused.message)

    def _move(self, firing: TemporalFiring, outcome: Applied, facts: FactsFound) -> Answer:
        source, move = self._at.state, outcome.transition
        answer = self._at.enter(firing, outcome, _now())
        for task in self._awaited:  # their instance has moved on
            task.cancel()
        self._ask_effects(move.effects, firing, source)
        for each in move.then:
            for linked in facts.linked.get(each.role, ()):
                if linked.workflow_id:
                    self._spawn(tell(linked.workflow_id, TemporalFiring(each.trigger, firing.by, "machinery")))
        if move.relink:
            self._spawn(relink(LinkChange(self._at.id, move.relink.role, facts.named)))
        return answer

    async def _take_up(self, start: TemporalStart) -> None:
        """Go on with what was under way elsewhere: its approvals, its effects, and first of all its triggers."""
        for held in start.held:
            self._at.held.add((held.firing.trigger, held.version))
            self._spawn(self._await_approval(held.firing, held.version, held.approval_id, held.approval))
        for effect in start.effects:
            self._begin(effect)
        async with self._lock:  # it is free: nothing that comes later is decided before these
            for each in start.pending:
                if each.at is None:
                    await self._try(each.firing, each.bound_version, each.granted)
                else:
                    self._spawn(self._fire_at(each.at, each))

    async def _fire_at(self, at: float, pending: TemporalPending) -> None:
        await asyncio.sleep(max(at - _now(), 0.0))
        await self._note(pending.firing, pending.bound_version, pending.granted)

    # What follows -------------------------------------------------------------------------------------------------

    async def _elapse(self, due: float | None) -> None:
        async with self._lock:
            if self._at.due_at == due:  # nothing has moved it meanwhile
                self._at.due_at = None
                trigger = self.definition.deadlines[self._at.state].trigger
                await self._try(TemporalFiring(trigger, "system", "machinery"), None)

    async def _await_approval(self, firing: TemporalFiring, version: int, child: str, start: TemporalStart) -> None:
        granted = await granted_by(child, start)
        async with self._lock:
            self._at.held.discard((firing.trigger, version))
            if granted:
                await self._try(firing, version, granted=True)
            else:
                self._at.last = {"trigger": firing.trigger, "status": "rejected", "code": "approval"}

    def _ask_effects(self, effects: Sequence[Effect], firing: TemporalFiring, source: str | None) -> None:
        for number, effect in enumerate(effects):
            wanted = self._at.effect(effect.name, number, firing, source)
            self._begin(TemporalEffect(wanted, effect.done, effect.failed))

    def _begin(self, effect: TemporalEffect) -> None:
        task = self._spawn(self._effect(effect))
        if effect.done or effect.failed:
            self._awaited.add(task)
            task.add_done_callback(self._awaited.discard)

    async def _effect(self, effect: TemporalEffect) -> None:
        trigger, data = await carry_out(effect)
        if trigger:
            if own_task := asyncio.current_task():
                self._awaited.discard(own_task)  # the move that it asks for must not cancel it
            await self._note(TemporalFiring(trigger, "system", "effect", data), effect.wanted.version)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Its end ------------------------------------------------------------------------------------------------------

    def _changed_from(self, due: float | None) -> Callable[[], bool]:
        return lambda: self._at.due_at != due or self._is_over() or self._is_long()

    def _is_over(self) -> bool:
        return not self._at.legal and not self._tasks

    def _is_long(self) -> bool:
        idle = not self._tasks and workflow.all_handlers_finished()
        return idle and workflow.info().is_continue_as_new_suggested()


def _now() -> float:
    return workflow.now().timestamp()


def _refused(outcome: Rejected | Superseded) -> ApplicationError:
    status = "rejected" if isinstance(outcome, Rejected) else "superseded"
    reason = {"status": status, **outcome.reason}
    return ApplicationError(reason["message"], reason, type=reason["code"], non_retryable=True)
