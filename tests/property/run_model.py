"""What a run should do, said again from the specification (docs/spec). Knows nothing of the code.

No counters and no signals: whenever something happened, everybody looks at the whole world; all that is due happens at
once, and again, until nothing is due. What a person, a worker or a gate's command says comes from outside: `told`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.property.run_things import Gate, LandingApproval, Phase, Task, Thing, Workstream

OPEN = {"ready", "executing"}
TO_WORK = {"pending", "blocked", "queued", "running", "retrying"}  # a task that has not worked yet
WORKED = {"running", "validating", "retrying", "completed", "failed"}
ROUNDS = 200  # nothing takes so many to settle

Due = tuple[Thing, str]


@dataclass(eq=False)
class World:
    """A run and all in it."""

    run: Thing = field(default_factory=lambda: Thing("run", "pending"))
    workstreams: list[Workstream] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    approvals: list[LandingApproval] = field(default_factory=list)

    def things(self) -> list[Thing]:
        """What has to end."""
        return [self.run, *self.workstreams, *self.tasks, *self.gates]

    def open(self) -> list[Thing]:
        """What waits for somebody to say how it went."""
        return [thing for thing in [*self.things(), *self.approvals] if self._is_open(thing)]

    def _is_open(self, thing: Thing) -> bool:
        match thing:
            case Task(state="queued"):
                return thing.home.state in OPEN and not thing.home.held
            case Task(state="running" | "retrying") | Gate(state="RUNNING"):
                return True
            case Gate(state="PENDING"):
                return thing.asked
            case Workstream(state="validating"):
                return thing.landing and not thing.held
            case LandingApproval(state="pending", of=Workstream(state="validating")):
                return True
        return False

    def settle(self) -> None:
        """Let everything happen that is due."""
        for _ in range(ROUNDS):
            due = [*self._due()]
            if not due:
                return
            for thing, what in due:
                self._do(thing, what)
        raise AssertionError(f"the model never comes to rest: {due}")

    def told(self, thing: Thing, trigger: str) -> bool:
        """Something is said from outside; False: it is refused, and nothing happens."""
        to = self.answer(thing, trigger)
        if to is None:
            return False
        if isinstance(thing, Task) and to == "retrying":
            thing.retries += 1
        if isinstance(thing, Task) and trigger == "worker_started":
            thing.begun = True
        thing.state = to
        return True

    def answer(self, thing: Thing, trigger: str) -> str | None:  # noqa: PLR0911, PLR0912 - a line for each row of the tables
        """The state that something said from outside leads to; None: it is refused."""
        match thing, trigger, thing.state:
            case Task(), "worker_started", "queued":
                return "running"
            case Task(), "execution_completed", "running":
                return "validating"
            case Task(), "execution_failed" | "timeout_exceeded", "running":  # TASK-6: one like the other
                return "retrying" if thing.retries < thing.max_retries else "failed"
            case Task(), "retry_delay_elapsed", "retrying":
                return "queued"
            case Gate(), "gate_started", "PENDING":
                return "RUNNING" if all(each.state == "PASSED" for each in thing.after) else None
            case Gate(), "gate_failed", "PENDING":
                return "FAILED"
            case Gate(), "gate_passed" | "gate_failed" | "timeout_exceeded", "RUNNING":  # GATE-4: a deadline, too
                return "PASSED" if trigger == "gate_passed" else "FAILED"
            case Workstream(), "validation_passed", "validating":
                may = all(gate.state == "PASSED" for gate in thing.final) and not thing.held and thing.may_land
                return "completed" if may else None
            case Workstream(), "validation_failed", "validating":
                return "failed"
            case LandingApproval(), "approve" | "reject" | "expire", "pending":
                return {"approve": "approved", "reject": "rejected", "expire": "expired"}[trigger]
            case Workstream(), "skip", "planned" | "ready" | "blocked":
                return "skipped"
            case Workstream(), "pause", "executing":
                return "paused"
            case Workstream(), "resume", "paused":
                return "executing"
            case Workstream() | Task(), "user_cancelled", _:  # WORKSTREAM-13, TASK-12
                return None if thing.ended else "cancelled"
            case _, "start", "pending":
                return "running"
            case _, "cancel", "pending" | "running":
                return "canceled"
        return None

    def _due(self) -> Iterator[Due]:
        for task in self.tasks:
            if to := self._task_due(task):
                yield task, to
        for gate in self.gates:
            if to := self._gate_due(gate):
                yield gate, to
        for workstream in self.workstreams:
            if to := self._workstream_due(workstream):
                yield workstream, to
        if to := self._run_due():
            yield self.run, to

    def _do(self, thing: Thing, what: str) -> None:
        if what == "again":
            assert isinstance(thing, Gate)
            self.run_again(thing, reruns=thing.reruns - 1)
        elif what == "ask":
            assert isinstance(thing, Gate)
            thing.asked = True
        elif what == "land":
            assert isinstance(thing, Workstream)
            thing.landing = True
        elif what == "ask for approval":
            assert isinstance(thing, Workstream)
            thing.approval = LandingApproval(f"{thing.name}:land", of=thing)
            self.approvals.append(thing.approval)
        else:
            thing.state = what
            if isinstance(thing, Task) and what == "cancelled":
                thing.given_up = True
            if isinstance(thing, Task) and what == "failed":
                thing.misjudged = True
            if isinstance(thing, Workstream) and what in ("cancelled", "skipped"):
                thing.given_up = True

    def over(self, home: Workstream) -> bool:
        return home.ended or self.run.ended

    def _task_due(self, task: Task) -> str | None:  # noqa: PLR0911 - a line for each rule
        if task.ended:
            return None
        if self.over(task.home):
            return "cancelled"
        never = any(each.state in ("failed", "cancelled") for each in task.after) or any(map(self.never, task.before))
        now = all(each.state == "completed" for each in task.after) and all(g.state == "PASSED" for g in task.before)
        match task.state:
            case "pending" if never or any(gate.state in ("FAILED", "BLOCKED") for gate in task.before):  # GATE-6
                return "blocked"
            case "pending" if now and task.home.state in OPEN and not task.home.held and self.run.state == "running":
                return "queued"
            case "blocked" if never:  # TASK-13
                return "cancelled"
            case "blocked" if now:
                return "pending"
            case "validating" if any(map(self.never, task.gates)):
                return "failed"
            case "validating" if all(gate.state == "PASSED" for gate in task.gates):  # TASK-10
                return "completed"
        return None

    def _gate_due(self, gate: Gate) -> str | None:
        if self.over(gate.home) and not gate.ended:
            return "CANCELLED"  # GATE-11
        match gate.state:
            case "FAILED" if self._may_run_again(gate) and not gate.replaced:
                waiting = [each for each in self.gates if gate in each.after and each.state == "PENDING"]
                return "again" if all(self.over(each.home) for each in waiting) else None  # they are blocked first
            case "BLOCKED" if all(each.state == "PASSED" for each in gate.after):
                return "PENDING"
            case "PENDING":
                if any(each.state in ("FAILED", "BLOCKED") for each in gate.after):
                    return "BLOCKED"
                if all(each.state == "PASSED" for each in gate.after) and self._its_moment(gate):
                    return None if gate.asked else "ask"
        return None

    def _may_run_again(self, gate: Gate) -> bool:
        return gate.reruns > 0 and not self.over(gate.home)

    def _its_moment(self, gate: Gate) -> bool:
        if gate.moment == "start":
            return gate.home.state in OPEN | {"validating"} and self.run.state == "running"
        if gate.moment == "final":
            return gate.home.state == "validating"
        judged = [task.state for task in self._judged(gate)]
        return "validating" in judged and not TO_WORK.intersection(judged)

    def _judged(self, gate: Gate) -> list[Task]:
        return [task for task in self.tasks if gate in task.gates]

    def never(self, gate: Gate) -> bool:
        """Can this gate never pass any more? (GATE-8: what depends on it can never be satisfied.)"""
        if gate.state == "FAILED":
            return not self._may_run_again(gate)
        if gate.state == "CANCELLED":
            return True
        if gate.state not in ("PENDING", "BLOCKED"):
            return False
        nothing_to_judge = gate.moment == "task" and all(task.ended for task in self._judged(gate))
        return self.over(gate.home) or nothing_to_judge or any(map(self.never, gate.after))

    def _workstream_due(self, workstream: Workstream) -> str | None:  # noqa: PLR0911 - a line for each rule
        if workstream.ended or self.run.state == "pending":
            return None
        if self.run.ended:
            return "cancelled"
        states = [task.state for task in workstream.tasks]
        match workstream.state:
            case "planned" | "blocked":
                return self._may_open(workstream)
            case "ready" if WORKED.intersection(states):
                return "executing"
            case "ready" if not states:  # an operator left every one out
                return "skipped"
            case "ready" if all(state == "cancelled" for state in states):
                return "cancelled"
            case "executing" | "paused" if any(task.critical and task.state == "failed" for task in workstream.tasks):
                return "failed"
            case "executing" if all(state == "completed" for state in states):
                return "validating"
            case "executing" if all(task.ended for task in workstream.tasks):  # WORKSTREAM-10
                return "failed"
            case "validating" if any(map(self.never, workstream.final)):
                return "failed"
            case "validating" if all(gate.state == "PASSED" for gate in workstream.final):
                return None if workstream.landing else self._may_land(workstream)
        return None

    def _may_land(self, workstream: Workstream) -> str | None:
        if workstream.phase and workstream.phase.approvers:
            if workstream.approval is None:
                return "ask for approval"
            if workstream.approval.state in ("rejected", "expired"):
                return "failed"
        return "land" if workstream.may_land and not workstream.held else None

    def _may_open(self, workstream: Workstream) -> str | None:
        states = {each.state for each in workstream.after}
        if states & {"failed", "cancelled"}:
            return "cancelled"
        if "skipped" in states:
            return "skipped"
        if states <= {"completed"}:
            return "ready"
        return "blocked" if workstream.state == "planned" else None

    def _run_due(self) -> str | None:
        if self.run.state != "running":
            return None
        counted = [each for each in self.workstreams if not each.left_out]  # RUN-2
        if any(each.critical and each.state == "failed" for each in counted):
            return "failed"
        if not all(each.ended for each in counted):
            return None
        well = all(each.state in ("completed", "skipped") for each in counted)
        return "succeeded" if well else "failed"

    def run_again(self, old: Gate, *, reruns: int) -> None:
        """GATE-7: a new one takes the place of the failed one wherever that was named."""
        again = old.again(self.name_again(old), old.home, reruns)
        old.replaced = True
        self.gates.append(again)
        named_in = [each.after for each in self.gates if each is not again]
        named_in += [each.final for each in self.workstreams]
        named_in += [names for task in self.tasks for names in (task.before, task.gates)]
        for names in named_in:
            names[:] = [again if gate is old else gate for gate in names]

    def name_again(self, old: Thing) -> str:
        """The name of what takes this one's place: that of the first, and a number."""
        base = old.name.partition("#")[0]
        return f"{base}#{sum(each.name.partition('#')[0] == base for each in self.things())}"
