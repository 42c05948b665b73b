"""A run and its model side by side: what happens to one happens to the other, and both must agree each time."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import note

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.orchestration.scheduler import schedule
from tests.driving import partitions_due
from tests.property.run_model import World
from tests.property.run_things import Gate, LandingApproval, Task, Thing, Workstream
from tests.rights import fire_all
from tests.running import Stage

T = TypeVar("T")

REPORTS: dict[str, list[tuple[str, dict[str, Any]]]] = {  # what may be said of a thing in a state, the best first
    "queued": [("worker_started", {})],
    "running": [
        ("execution_completed", {"exit_code": 0}),
        ("execution_failed", {"exit_code": 1, "error": "no"}),
        ("timeout_exceeded", {}),
        ("execution_failed", {"reason": "its worker was lost"}),
    ],
    "PENDING": [("gate_started", {}), ("gate_failed", {"exit_code": 126, "stderr": "no such program"})],
    "RUNNING": [("gate_passed", {"exit_code": 0}), ("gate_failed", {"exit_code": 1, "stderr": "no"})],
    "pending": [("approve", {}), ("reject", {"reason": "too late"}), ("expire", {})],
    "validating": [("validation_passed", {}), ("validation_failed", {"reason": "conflict"})],
}
DEADLINES = {"running": "timeout_exceeded", "retrying": "retry_delay_elapsed", "RUNNING": "timeout_exceeded"}
REFUSABLE: list[tuple[type[Thing], str, dict[str, Any]]] = [
    *((Task, trigger, data) for state in ("queued", "running") for trigger, data in REPORTS[state]),
    (Task, "retry_delay_elapsed", {}),
    *((Gate, trigger, data) for state in ("PENDING", "RUNNING") for trigger, data in REPORTS[state]),
    *((Workstream, trigger, data) for trigger, data in REPORTS["validating"]),
    *((LandingApproval, trigger, data) for trigger, data in REPORTS["pending"]),
]


APPROVER = "carol"
_UNCLAIM = """
DELETE FROM task_claims  -- made only to fire what was refused: without them, nobody had the task
 WHERE task_id = ANY(%s) AND ended_at IS NULL
   AND NOT EXISTS (SELECT FROM workflow_transitions t WHERE t.workflow_id = task_id AND t.trigger = 'worker_started')"""


class Theatre(Stage):
    """A stage that looks only where something is due, and puts up with being told the same twice."""

    def _context(self, sketch: Mapping[str, Any]) -> dict[str, Any]:
        """Retries wait for `let_time_pass`: on a slow machine 2 s go by in the midst of a step."""
        context = super()._context(sketch)
        return context | {"backoff": {"base": 7_200.0, "cap": 7_200.0}} if "max_retries" in context else context

    def settle(self) -> int:
        total = 0
        while (partitions := partitions_due(self.runtime)) or self._signalled():
            done = sum(self.runtime.applier.apply_partition(partition).taken for partition in partitions)
            total += done
            if schedule(self.runtime, self.run) + done == 0:
                break
        return total

    def _signalled(self) -> bool:
        """Whether the scheduler has something to read: one statement instead of a pass over nothing."""
        return self.dba.execute("SELECT FROM run_signals WHERE run_id = %s LIMIT 1", (self.run,)).rowcount > 0


@dataclass
class Play:
    """A run on the stage and its model. What is said to one is said to the other, and both must agree each time."""

    stage: Stage
    world: World
    well: int = 6  # of ten reports, those that are good whatever the chances say
    said: dict[str, bool] = field(default_factory=dict)
    firings: list[Firing] = field(default_factory=list)
    spoken: list[Thing] = field(default_factory=list)
    refused: list[Thing] = field(default_factory=list)  # those of the spoken to that will refuse it
    did: Counter[str] = field(default_factory=Counter)  # what came to pass, by name

    def say(self, thing: Thing, trigger: str, **data: Any) -> None:
        """Fire a trigger, once the step is over."""
        if self._is_taken(thing):
            return
        self.spoken.append(thing)
        request_id = f"{self.stage.run}/{len(self.said)}"
        if isinstance(thing, Task):  # whoever reports on it, be it too late
            worker = str(self.stage.worker())
            data = {"worker_id": worker, "capabilities": []} if trigger == "worker_started" else data
        self.said[request_id] = self.world.told(thing, trigger)
        self.refused += [] if self.said[request_id] else [thing]
        note(f"{thing.name}: {trigger} {'' if self.said[request_id] else '(to be refused)'}")
        by = "test"
        if isinstance(thing, LandingApproval):
            by = APPROVER
            self.did[trigger] += self.said[request_id]
        self.firings.append(Firing(self.stage.ids[thing.name], trigger, by, request_id, data))

    def let_time_pass(self, thing: Thing) -> None:
        """The deadline of whatever state the thing is in runs out."""
        if self._is_taken(thing):
            return
        self.spoken.append(thing)
        note(f"{thing.name}: its time is over")
        self.stage.dba.execute(  # and of nothing else: on a slow machine, a retry of another task may be due as well
            "UPDATE trigger_requests SET not_before = now() + (workflow_id <> %s)::integer * interval '1 hour'"
            " WHERE status = 'scheduled'",
            (self.stage.ids[thing.name],),
        )
        with transaction(self.stage.runtime.database) as connection:
            requests.wake(connection, limit=1_000)
        self.world.told(thing, DEADLINES.get(thing.state, ""))

    def _is_taken(self, thing: Thing) -> bool:
        """Whether this step says something to the thing, or says what is refused as long as the thing has not moved.

        The triggers of a step are in several partitions, which are decided in the order of their numbers, by chance.
        """
        return thing in self.spoken or any(thing in looked_at(each) for each in self.refused)

    def end_step(self) -> None:
        """Let both settle, and compare."""
        fired = [firing.request_id for firing in self.firings]
        refused = [self.stage.ids[each.name] for each in self.refused]
        fire_all(self.stage.client, self.firings)
        self.firings, self.spoken, self.refused = [], [], []
        self.stage.settle()
        if refused:
            self.stage.dba.execute(_UNCLAIM, (refused,))
        self.world.settle()
        self.meet_new()
        everything = [*self.world.things(), *self.world.phases, *self.world.approvals]
        assert self.stage.states(*(each.name for each in everything)) == {each.name: each.state for each in everything}
        assert self._asked() == {self.stage.ids[gate.name] for gate in self.world.gates if gate.asked}
        if not fired:
            return
        with transaction(self.stage.runtime.database) as connection:
            statuses = {name: row["status"] for name, row in requests.by_ids(connection, fired).items()}
        assert statuses == {name: "applied" if self.said[name] else "rejected" for name in fired}

    def _asked(self) -> set[UUID]:
        """The gates that a node was asked to run."""
        query = "SELECT e.workflow_id FROM effects e JOIN test_gates g ON g.gate_id = e.workflow_id"
        return {
            row[0]
            for row in self.stage.dba.execute(f"{query} WHERE e.name = 'run_gate' AND g.run_id = %s", (self.stage.run,))
        }

    def late(self) -> Iterator[tuple[Thing, str, dict[str, Any]]]:
        """Reports that are a second one of the same, or too late."""
        for thing in [*self.world.things(), *self.world.approvals]:
            for kind, trigger, data in REFUSABLE:
                if isinstance(thing, kind) and self.world.answer(thing, trigger) is None:
                    yield thing, trigger, data

    def meet_new(self) -> None:
        """Find what was made in the place of others."""
        for approval in (each for each in self.world.approvals if each.name not in self.stage.ids):
            self._meet(approval.name, "lands", approval.of)
        for thing in (each for each in self.world.things() if each.name not in self.stage.ids):
            self._meet(thing.name, "retry_of", thing.retry_of)

    def _meet(self, name: str, role: str, of: Thing | None) -> None:
        assert of
        found = self.stage.dba.execute(
            "SELECT source_id FROM workflow_links WHERE target_id = %s AND role = %s", (self.stage.ids[of.name], role)
        ).fetchall()
        assert len(found) == 1, f"{name} should have been made, once"
        self.stage.ids[name] = found[0][0]


def looked_at(thing: Thing) -> list[Thing]:
    """What a thing's guards look at, of all that is spoken to."""
    match thing:
        case Gate():
            return [*thing.after]
        case Workstream():
            return [*thing.final, *([thing.approval] if thing.approval else [])]
    return []


def take(play: Play, verb: str, chances: Random) -> None:
    """One thing happens, by chance to one of those that it can happen to."""
    world = play.world

    def one_of(things: Iterable[T]) -> T | None:
        found = [*things]
        return chances.choice(found) if found else None

    match verb:
        case "answer" if thing := one_of(world.open()):
            answer(play, thing, chances)
        case "time_passes" if thing := one_of([*world.tasks, *world.gates]):
            play.let_time_pass(thing)
        case "late" if late := one_of(play.late()):
            play.say(late[0], late[1], **late[2])
        case "again" if play.firings:
            play.firings.append(chances.choice(play.firings))
        case "pause" if each := one_of(each for each in world.workstreams if each.state == "executing"):
            play.say(each, "pause")
        case "resume" if each := one_of(each for each in world.workstreams if each.state == "paused"):
            play.say(each, "resume")
        case "interfere":
            interfere(play, chances)


def interfere(play: Play, chances: Random) -> None:
    """A person does not want something any more: now and then the whole run."""
    world, what = play.world, chances.randrange(20)
    if what == 0:
        play.say(world.run, "cancel", reason="enough")
    elif what < 4:
        play.say(chances.choice(world.workstreams), "user_cancelled")
    elif what < 8:
        play.say(chances.choice(world.workstreams), "skip", reason="not wanted")
    else:
        play.say(chances.choice(world.tasks), "user_cancelled")


def answer(play: Play, thing: Thing, chances: Random) -> None:
    """Whoever works for an open thing reports."""
    if thing.state == "retrying":
        play.let_time_pass(thing)
        return
    reports = REPORTS[thing.state]
    trigger, data = reports[0] if chances.randrange(10) < play.well else chances.choice(reports)
    play.say(thing, trigger, **data)


def finish(play: Play, chances: Random, do_again: Callable[[Play, Random], bool]) -> bool:
    """Answer whatever is open until the run has ended; then what still runs, which nobody waits for.

    Args:
        play, chances: as everywhere.
        do_again: what an operator may do twice meanwhile; whether that was done.

    Returns:
        False if it waits for phases that are frozen.
    """
    world, times = play.world, 2
    for _ in range(12 * len(world.things())):
        if world.run.ended and not world.open():
            return True
        times -= times > 0 and do_again(play, chances)
        paused = [each for each in world.workstreams if each.state == "paused"]
        opened = world.open()
        if not (world.run.state == "pending" or paused or opened):
            assert any(each.held and not each.ended for each in world.workstreams), "it waits for ever"
            return False
        if world.run.state == "pending":
            play.say(world.run, "start")
        for each in paused:
            play.say(each, "resume")
        for thing in chances.sample(opened, chances.randint(min(1, len(opened)), len(opened))):
            answer(play, thing, chances)
        play.end_step()
    raise AssertionError("it does not end")
