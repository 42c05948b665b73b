"""What the engine should do, said again in plain dicts from docs/spec/delivery.md. Knows nothing of its code.

A *round* takes a partition's due requests, oldest first, and decides each where the one before it left its instance.
What other instances say (a story's pull requests, a sprint's stories) is as it was when the round began; what a round
releases, closes or fires is there when it has ended. A link that a round changed is read by the next.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.paths import moves

RELINKS = ("move_to_sprint", "leave_sprint")
_OPEN = ("analysis", "design", "implementation", "review", "testing")
MOVES = {
    "story": moves(
        "analysis design_complete design start_coding implementation submit_pr review approve testing tests_pass done",
        "review request_changes implementation",
        "testing tests_fail implementation",
        *(f"{state} block blocked unblock implementation" for state in _OPEN),
        *(f"{state} {trigger} {state}" for state in (*_OPEN, "blocked") for trigger in RELINKS),
    ),
    "sprint": moves("planning start active finish review complete done"),
    "pr_review": moves(
        "submitted start_review reviewing request_changes changes_requested resubmit reviewing",
        "reviewing approve approved merge merged",
        "approved dismiss reviewing",
    ),
    "approval": moves("pending approve approved", "pending reject rejected", "pending expire expired"),
    "turnstile": moves("shut coin open push shut", "shut remove removed", "open remove removed"),
}
BEGINS = {
    "story": "analysis",
    "sprint": "planning",
    "pr_review": "submitted",
    "approval": "pending",
    "turnstile": "shut",
}
ASK_FIRST = {("sprint", "start"), ("sprint", "complete"), ("pr_review", "merge")}
READS_LINKS = {("story", "approve"), ("sprint", "complete"), *(("story", trigger) for trigger in RELINKS)}
DEADLINES = {("approval", "pending"): "expire", ("turnstile", "open"): "push"}
FINISHED = {"applied", "rejected", "superseded", "dead"}
ATTEMPTS = 3
OPERATORS = {"ann"}


def triggers(type_: str) -> list[str]:
    """Every trigger of a machine."""
    return sorted({trigger for _, trigger in MOVES[type_]})


def states(type_: str) -> list[str]:
    """Every state of a machine."""
    return sorted({state for state, _ in MOVES[type_]} | {*MOVES[type_].values()})


@dataclass(eq=False)
class Thing:
    """An instance."""

    key: str
    type: str
    partition: int
    context: dict[str, Any] = field(default_factory=dict)
    state: str = ""
    version: int = 0
    history: list[tuple[int, str, str, str, str]] = field(default_factory=list)  # seq, from, to, trigger, by
    sprint: "Thing | None" = None

    def __post_init__(self) -> None:
        self.state = BEGINS[self.type]


@dataclass(eq=False)
class Asked:
    """A request. `place` is where it stands in the order accepted."""

    thing: Thing
    trigger: str
    by: str
    status: str
    place: int = 0
    name: str = ""
    origin: str = "agent"
    bound: int | None = None
    if_version: int | None = None  # which version its caller named
    conflict: bool = False
    attempts: int = 0
    granted: bool = False
    approval: Thing | None = None
    to: str | None = None  # where an override is to lead
    sprint: Thing | None = None  # that its data names
    data: dict[str, str] = field(default_factory=dict)


@dataclass
class Round:
    """What a round brings about when it has ended."""

    new: list[Asked] = field(default_factory=list)
    approvals: list[tuple[Asked, Thing]] = field(default_factory=list)
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    moved: set[int] = field(default_factory=set)
    relinked: set[int] = field(default_factory=set)
    merged: dict[int, bool] = field(default_factory=dict)  # by story, as it was when the round began
    finished: dict[int, bool] = field(default_factory=dict)  # by sprint: are all its stories done?


class Model:
    """All instances and requests."""

    def __init__(self) -> None:
        self.things: list[Thing] = []
        self.asked: list[Asked] = []
        self.broken: set[str] = set()

    def round(self, partition: int, limit: int) -> Round:
        """One round of a partition."""
        ended, failed = Round(), set()
        ended.merged = {id(thing): self._pull_requests_merged(thing) for thing in self.things}
        ended.finished = {id(thing): self._stories_done(thing) for thing in self.things}
        for asked in self._due(partition)[:limit]:
            if asked.thing not in failed and (self._is_unsettled(asked, ended) or not self._judge(asked, ended)):
                failed.add(asked.thing)
        for happen in ended.afterwards:
            happen()
        self.asked += ended.new
        return ended

    def time_passes(self) -> None:
        """Everything put off becomes due."""
        for asked in self.asked:
            if asked.status == "scheduled":
                asked.status = "pending"

    def redrive(self) -> None:
        """Dead requests get a new set of attempts."""
        for asked in self.asked:
            if asked.status == "dead":
                asked.status, asked.attempts = "pending", 0

    def born(self, thing: Thing) -> list[Asked]:
        """Add an instance; the timer of its first state."""
        self.things.append(thing)
        timer = self._timer(thing)
        self.asked += timer
        return timer

    def _due(self, partition: int) -> list[Asked]:
        def in_the_way(asked: Asked) -> bool:
            return any(
                asked.to is None
                and other.thing is asked.thing
                and other.status == "scheduled"
                and other.attempts > 0
                and other.place < asked.place
                for other in self.asked
            )

        pending = [asked for asked in self.asked if asked.status == "pending" and asked.thing.partition == partition]
        return sorted((asked for asked in pending if not in_the_way(asked)), key=lambda asked: asked.place)

    @staticmethod
    def _is_unsettled(asked: Asked, ended: Round) -> bool:
        """Whether what it reads of others was changed by this round: it is left for the next."""
        reads = (asked.thing.type, asked.trigger) in READS_LINKS and id(asked.thing) in ended.relinked
        return reads or (asked.sprint is not None and id(asked.sprint) in ended.moved)

    def _judge(self, asked: Asked, ended: Round) -> bool:
        """Decide one request; False when it failed, and those behind it must wait."""
        thing = asked.thing
        if asked.if_version not in (None, thing.version) and not asked.granted:
            asked.status, asked.conflict = "rejected", True
            return True
        if asked.bound is not None and asked.bound != thing.version:
            asked.status = "superseded"
            return True
        dest = MOVES[thing.type].get((thing.state, asked.trigger))
        if dest == "approved" and thing.type == "approval" and self._is_below_quorum(asked):
            dest = "pending"
        if dest is None:
            asked.status = "rejected"
            return True
        if asked.to is not None:  # guards and approvals are passed over, the machine and what a link becomes are not
            may = asked.by in OPERATORS and asked.to == dest
            asked.status = "applied" if may and self._is_relinkable(asked) else "rejected"
            if asked.status == "applied":
                self._move(asked, dest, ended)
            return True
        if asked.trigger == "coin" and asked.by in self.broken:
            asked.attempts += 1
            asked.status = "dead" if asked.attempts >= ATTEMPTS else "scheduled"
            return False
        asked.status = self._answer(asked, ended)
        if asked.status == "asking":
            asked.status = "waiting"
            ended.approvals.append((asked, self._ask(asked)))
        elif asked.status == "applied":
            self._move(asked, dest, ended)
        return True

    @staticmethod
    def _is_relinkable(asked: Asked) -> bool:
        if asked.trigger == "leave_sprint":
            return asked.thing.sprint is not None
        named = asked.sprint
        return asked.trigger != "move_to_sprint" or (
            named is not None and named.state != "done" and named is not asked.thing.sprint
        )

    def _answer(self, asked: Asked, ended: Round) -> str:
        thing = asked.thing
        if asked.trigger in RELINKS:
            return "applied" if self._is_relinkable(asked) else "rejected"
        if asked.trigger == "complete" and not ended.finished[id(thing)]:
            return "rejected"
        if (thing.type, asked.trigger) in ASK_FIRST and not asked.granted:
            return "rejected" if self._is_held(asked) else "asking"
        if asked.trigger != "approve":
            return "applied"
        if thing.type == "story":
            return "applied" if ended.merged[id(thing)] else "rejected"
        again = thing.type == "approval" and asked.by in self._votes(thing)
        return "rejected" if again or asked.by == thing.context.get("author") else "applied"

    def _move(self, asked: Asked, dest: str, ended: Round) -> None:
        thing = asked.thing
        since = self._present_timer(thing, ended) if dest == thing.state else None
        thing.version += 1
        thing.history.append((thing.version, thing.state, dest, asked.trigger, asked.by))
        thing.state = dest
        ended.moved.add(id(thing))
        if asked.trigger in RELINKS:
            ended.relinked |= {id(each) for each in (thing, thing.sprint, asked.sprint) if each}
            thing.sprint = asked.sprint
        ended.new += self._timer(thing, since)
        if thing.type == "approval" and dest != "pending":
            ended.afterwards.append(lambda: self._close(thing))
        if asked.trigger == "merge" and (story := thing.context.get("story")):
            ended.new.append(Asked(story, "approve", asked.by, "pending", origin="follow_up"))

    def _close(self, approval: Thing) -> None:
        for asked in self.asked:
            if asked.status == "waiting" and asked.approval is approval:
                asked.granted = approval.state == "approved"
                asked.status = "pending" if asked.granted else "rejected"
                asked.bound = approval.context["version"] if asked.granted else None

    def _ask(self, asked: Asked) -> Thing:
        author = asked.thing.context.get("author", asked.by)
        asked.approval = Thing(f"for {asked.name}", "approval", -1, {"author": author, "version": asked.thing.version})
        return asked.approval

    def refuses(self, thing: Thing, trigger: str, by: str) -> bool:
        """Whether somebody may not fire this at all: an author may not approve."""
        return thing.type == "approval" and trigger == "approve" and by == thing.context.get("author")

    def _timer(self, thing: Thing, since: Asked | None = None) -> list[Asked]:
        """The timer of its state; `since`: the one that ran before a move that stayed there, due when that was."""
        trigger = DEADLINES.get((thing.type, thing.state))
        status = since.status if since else "scheduled"
        return [Asked(thing, trigger, "system", status, origin="timer", bound=thing.version)] if trigger else []

    def _present_timer(self, thing: Thing, ended: Round) -> Asked | None:
        return next(
            (
                asked
                for asked in (*self.asked, *ended.new)
                if asked.thing is thing
                and asked.origin == "timer"
                and asked.bound == thing.version
                and asked.status in ("scheduled", "pending")
            ),
            None,
        )

    def _is_below_quorum(self, asked: Asked) -> bool:
        if asked.to is not None:  # an override chooses
            return asked.to == "pending"
        return len(self._votes(asked.thing) | {asked.by}) < asked.thing.context.get("quorum", 1)

    def _is_held(self, asked: Asked) -> bool:
        """Whether an approval holds the same trigger, for the version that the instance has now."""
        return any(
            other.thing is asked.thing
            and other.trigger == asked.trigger
            and other.status == "waiting"
            and other.approval is not None
            and other.approval.context["version"] == asked.thing.version
            for other in self.asked
        )

    @staticmethod
    def _votes(thing: Thing) -> set[str]:
        return {by for _, _, dest, trigger, by in thing.history if trigger == "approve" and dest == "pending"}

    def _pull_requests_merged(self, story: Thing) -> bool:
        linked: Iterable[Thing] = [thing for thing in self.things if thing.context.get("story") is story]
        return bool(linked) and all(thing.state == "merged" for thing in linked)

    def _stories_done(self, sprint: Thing) -> bool:
        return all(thing.state == "done" for thing in self.things if thing.sprint is sprint)
