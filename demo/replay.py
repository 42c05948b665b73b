"""Replay real pull requests: create their stories and reviews, and drive them all through Celery to the end."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from sqlalchemy import select

from demo.pull_requests import Journey, read
from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.statements import among
from interlock.db.tables.core import instances
from interlock.workers.client.client import Client
from interlock.workers.client.receipts import SETTLED, NotSettled
from interlock.workers.engine.trigger_request import Firing
from interlock.workflows.input.arguments import door

REVIEWER = "reviewer"
POLL_SECONDS = 0.1

Key = tuple[str, str]  # project, entity id
Progress = Callable[[str, int, int], None]  # stage, how many of, how many


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did. `new` counts the triggers this run added: none, the second time."""

    pull_requests: int
    triggers: int
    applied: int
    rejected: int
    self_approvals: int
    new: int
    seconds: float


@dataclass(slots=True)
class Replay:
    """One replay in progress."""

    client: Client
    journeys: Sequence[Journey]
    progress: Progress
    patience_seconds: float
    new: int = 0

    def run(self) -> Replayed:
        """Create, drive to the merge, approve, finish; wait for each stage."""
        started = time.monotonic()
        stories, reviews = self._create()
        driven = [
            firing
            for journey in self.journeys
            for firing in journey.to_merge(stories[journey.story_key], reviews[journey.review_key])
        ]
        self._drive("reviewing", driven)
        approvals = self._approvals()
        decided = [
            journey.to_approval(approvals[journey.merge_request()])
            for journey in self.journeys
            if journey.merge_request() in approvals
        ]
        self._drive("approving", decided)
        self._wait("merging", [journey.merge_request() for journey in self.journeys], final=True)
        done = [journey.to_done(stories[journey.story_key]) for journey in self.journeys]
        self._drive("testing", done)
        return self._count([*driven, *decided, *done], time.monotonic() - started)

    def _create(self) -> tuple[dict[Key, UUID], dict[Key, UUID]]:
        client, ids = self.client, {}
        for type_, name in (("story", "story"), ("pr_review", "review")):
            births = [
                client.birth(
                    type_,
                    getattr(journey, name),
                    project=journey.pull_request.project,
                    context=self._context(type_, journey),
                    by=journey.pull_request.author,
                )
                for journey in self.journeys
            ]
            client.create_many(births)
            with transaction(client.runtime.database) as connection:
                query = select(instances.c.project, instances.c.entity_id, instances.c.id).where(
                    instances.c.workflow_type == type_, among(instances.c.entity_id, [b.entity_id for b in births])
                )
                ids[type_] = {(project, entity_id): id_ for project, entity_id, id_ in connection.execute(query)}
        return ids["story"], ids["pr_review"]

    def _context(self, type_: str, journey: Journey) -> dict[str, str]:
        pull_request = journey.pull_request
        about = {"title": pull_request.title, "author": pull_request.author}
        return about | ({"story_id": journey.story} if type_ == "pr_review" else {})

    def _drive(self, stage: str, firings: Sequence[Firing]) -> None:
        for receipt in self.client.fire_many(firings):
            self.new += not receipt.replayed
        self._wait(stage, [firing.request_id for firing in firings])

    def _wait(self, stage: str, request_ids: Sequence[str], *, final: bool = False) -> None:
        ended = SETTLED - {"waiting"} if final else SETTLED
        last, since = -1, time.monotonic()
        while True:
            with transaction(self.client.runtime.database) as connection:
                counts = requests.count_by_status(connection, request_ids)
            settled = sum(count for status, count in counts.items() if status in ended)
            self.progress(stage, settled, len(request_ids))
            if settled == len(request_ids):
                return
            if settled != last:
                last, since = settled, time.monotonic()
            elif time.monotonic() - since > self.patience_seconds:
                raise NotSettled(
                    f"{stage}: {settled} of {len(request_ids)} triggers settled, and none for "
                    f"{self.patience_seconds:g} s. Look with `interlock doctor`; running the replay again resumes it."
                )
            time.sleep(POLL_SECONDS)

    def _approvals(self) -> dict[str, UUID]:
        with transaction(self.client.runtime.database) as connection:
            merges = requests.by_ids(connection, [journey.merge_request() for journey in self.journeys])
        return {name: merge["held_by"] for name, merge in merges.items() if merge["held_by"]}

    def _count(self, firings: Sequence[Firing], seconds: float) -> Replayed:
        with transaction(self.client.runtime.database) as connection:
            counts = requests.count_by_status(connection, [firing.request_id for firing in firings])
        return Replayed(
            pull_requests=len(self.journeys),
            triggers=len(firings),
            applied=counts.get("applied", 0),
            rejected=counts.get("rejected", 0),
            self_approvals=sum(journey.pull_request.self_merged for journey in self.journeys),
            new=self.new,
            seconds=round(seconds, 3),
        )


@door
def replay(
    client: Client,
    path: Path,
    *,
    reviewer: str = REVIEWER,
    progress: Progress = lambda *_: None,
    patience_seconds: float = 60.0,
) -> Replayed:
    """Turn a file of pull requests into stories and reviews and drive them to `done` and `merged`.

    First commit: work begins and the pull request is submitted. Each later commit: a review round. Then approval and
    merge by whoever merged it; where that was the author, the refusal is recorded and `reviewer` approves.

    Args:
        client: connected to a database whose workers are running.
        path: JSON lines, one pull request each.
        reviewer: who approves what its author merged.
        progress: told the stage, how much of it is done, and how much there is.
        patience_seconds: how long nothing may move before this gives up.

    Raises:
        BadInput: a line is not a pull request; nothing was created.
        NotSettled: nothing moved; a later replay resumes.
    """
    journeys = [Journey(pull_request, reviewer) for pull_request in read(path)]
    return Replay(client, journeys, progress, patience_seconds).run()
