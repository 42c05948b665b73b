"""Agents that fire triggers, whatever breaks meanwhile: each in a thread, with its own instances and client."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID

from interlock.db.core.requests import partition_of
from interlock.workers.client.client import Client
from interlock.workers.client.receipts import Receipt
from interlock.workers.engine.trigger_request import Firing
from interlock.workflows.errors import AlreadyExists
from tests.chaos.installation import Installation
from tests.waiting import eventually

PATIENCE_SECONDS = 90.0
PAUSE_SECONDS = 0.5  # between rounds: what breaks meets traffic, and what is checked afterwards stays small
LEAD_IN: dict[str, tuple[str, ...]] = {
    "story": ("design_complete", "start_coding"),
    "pr_review": ("start_review",),
    "ticket": (),
}
# Each round ends where it began. `tests_pass`, `merge` and `close` are illegal where they are fired; `approve` is
# refused by its guard, because the author fires it.
ROUND: dict[str, tuple[str, ...]] = {
    "story": ("submit_pr", "request_changes", "tests_pass", "block", "unblock"),
    "pr_review": ("request_changes", "merge", "resubmit", "approve"),
    "ticket": ("take", "give_back", "close", "take", "tell", "give_back"),
}


@dataclass
class Traffic:
    """What the agents do together. `accepted` holds every trigger whose acceptance an agent was told of."""

    installation: Installation
    name: str
    agents: int = 2
    also: Callable[[Client, Sequence[Receipt]], None] = lambda _client, _receipts: None
    accepted: dict[str, UUID] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _faults: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> "Traffic":
        for number in range(self.agents):
            thread = threading.Thread(target=self._agent, args=(f"{self.name}-{number}",), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for fault in self._faults:
            raise fault

    def flows(self, triggers: int = 30) -> None:
        """Return once so many more triggers were applied or refused than when this was called."""
        goal = self._settled() + triggers
        eventually(lambda: self._faults or self._settled() >= goal, timeout=PATIENCE_SECONDS)
        for fault in self._faults:
            raise fault

    def _settled(self) -> int:
        return int(
            self.installation.sql(
                "SELECT count(*) FROM trigger_requests WHERE finished_at IS NOT NULL AND starts_with(request_id, %s)",
                f"{self.name}-",
            )[0][0]
        )

    def _agent(self, agent: str) -> None:
        try:
            with self.installation.client() as client:
                Agent(client, agent, self._took).work(self._stop)
        except BaseException as fault:
            self._faults.append(fault)

    def _took(self, client: Client, receipts: Sequence[Receipt]) -> None:
        self.accepted.update((receipt.request_id, receipt.workflow_id) for receipt in receipts)
        self.also(client, receipts)


@dataclass
class Agent:
    """One agent: alone with its instances, so that the order it fires in is the order accepted."""

    client: Client
    name: str
    took: Callable[[Client, Sequence[Receipt]], None]
    _numbers: Iterator[int] = field(default_factory=count)

    def work(self, stop: threading.Event) -> None:
        """Round after round until told to stop; then lead one pull request to its merge."""
        own = {type_: self._create(type_, f"{self.name}-{type_}") for type_ in ROUND}
        self._fire([(id_, trigger, self.name) for type_, id_ in own.items() for trigger in LEAD_IN[type_]])
        for number in count():
            for type_, id_ in own.items():
                self._fire([(id_, trigger, self.name) for trigger in ROUND[type_]], at_once=number % 2 == 0)
            self._settle(self._vote(number))
            if stop.wait(PAUSE_SECONDS):
                break
        self._merge(own["pr_review"])

    def _vote(self, number: int) -> list[str]:
        approval = self._create("approval", f"{self.name}-vote-{number}", quorum=2, author="somebody")
        voters = ("ann", "ann", "bob", "carol")  # the second vote is refused, the third decides, the fourth is late
        return self._fire([(approval, "approve", voter) for voter in voters])

    def _merge(self, review: UUID) -> None:
        """The whole way: approved, merge held, approval given, merged."""
        merge = self._fire([(review, "approve", "reviewer"), (review, "merge", "bot")])[-1]
        held = self._settle([merge])[0]
        assert held.status == "waiting", held
        approval = self._persist(lambda: self.client.show((held.result or {})["approval"]))["id"]
        self._settle(self._fire([(approval, "approve", "lead")]))
        merged = eventually(lambda: self.client.wait([merge])[0].status == "applied", timeout=PATIENCE_SECONDS)
        assert merged

    def _fire(self, firings: Sequence[tuple[UUID, str, str]], *, at_once: bool = True) -> list[str]:
        wanted = [Firing(ref, trigger, by, f"{self.name}:{next(self._numbers)}") for ref, trigger, by in firings]
        for part in [wanted] if at_once else [[each] for each in wanted]:
            self.took(self.client, self._persist(lambda part=part: self.client.fire_many(part)))
        return [each.request_id for each in wanted]

    def _settle(self, request_ids: Sequence[str]) -> list[Receipt]:
        return self._persist(lambda: self.client.wait(request_ids))

    def _create(self, type_: str, entity_id: str, **context: Any) -> UUID:
        def create() -> UUID:
            try:
                given = {"author": self.name} | context
                return UUID(str(self.client.create(type_, entity_id, context=given)["id"]))
            except AlreadyExists:  # the commit was done, only its answer was lost
                return UUID(str(self.client.show(f"{type_}/{entity_id}")["id"]))

        return self._persist(create)

    def _persist(self, work: Callable[[], Any]) -> Any:
        """What an agent does when the database is away: the same again, under the same ids."""
        return eventually(work, timeout=PATIENCE_SECONDS)


def twice(client: Client, receipts: Sequence[Receipt]) -> None:
    """Deliver each trigger's message twice more, flags or no flags."""
    for receipt in receipts:
        for _ in range(2):
            client.runtime.app.send_task(
                "interlock.apply", args=[partition_of(receipt.workflow_id), receipt.request_id]
            )


def slow_trigger(client: Client, name: str) -> Receipt:
    """A trigger whose guard takes long enough to be caught at it."""
    ticket = client.create("ticket", name)
    return client.fire(ticket["id"], "take", by="ann", data={"takes_seconds": 1.0})
