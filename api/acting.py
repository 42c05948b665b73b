"""Actions on what a path names, as supervised workers and jobs: who asks, in which order, and the recorded answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends

from interlock.api.access import Called, Caller
from interlock.api.inside import inside
from interlock.api.models import Text
from interlock.api.outcomes import ACCEPTED, told
from interlock.api.parameters import IdempotencyKey, Project, one_key
from interlock.api.problems import JsonAnswer, Responses, documented
from interlock.api.supervision_models import ActionReason, ActionReport, OwnReport
from interlock.workers.client.client import Client
from interlock.workers.supervision.actions import ActionFailed, ActionOrder, Answer

MOVED: Responses = ACCEPTED | documented(409, 410)
Act = Callable[[Client, str | UUID, ActionOrder], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ActionCaller:
    """A sender of requests that acts on one worker, job or run.

    Attributes:
        caller: the sender.
        ref: which: its UUID, or its entity id in the project.
        project: as it was named.
        key: the Idempotency-Key.
    """

    caller: Caller
    ref: str
    project: str | None
    key: str | None

    async def do(self, said: ActionReason | ActionReport, act: Act) -> JsonAnswer:
        """Act; what is held for an approval or by a brake is 202."""

        def done() -> Mapping[str, Any]:
            with self.caller.located(self.ref, self.project, write=True) as (client, ref):
                return act(client, ref, order(self.caller, said, self.key))

        try:
            return JsonAnswer(await inside(done))
        except ActionFailed as failed:
            return told(failed.receipt)

    async def move(
        self,
        said: ActionReason | ActionReport,
        of: Callable[[Client], object],
        act: Callable[..., Answer],
        **given: object,
    ) -> JsonAnswer:
        """Move it by an action of `Jobs` or `Supervisor` (`of`); `given`: the action's own arguments."""
        return await self.do(said, lambda client, ref, order: recorded(act(of(client), ref, order, **given)))


def order(caller: Caller, said: ActionReason | ActionReport, key: str | None) -> ActionOrder:
    """What a body orders, in the name of the token."""
    secret = said.secret if isinstance(said, OwnReport) else ""
    return ActionOrder(caller.principal.name, said.reason, one_key(said.request_id, key), secret)


def recorded(answer: Answer) -> dict[str, Any]:
    """The recorded answer (`RecordedMove`)."""
    subject, response = answer.subject, answer.response
    said = {name: response.get(name) for name in ("seq", "event_id", "message")}
    moved = {"status": response["to"], "from_state": response.get("from"), "request_id": answer.request_id}
    return {name: subject[name] for name in ("id", "entity_id", "project")} | moved | said


def created(answer: Answer) -> JsonAnswer:
    """The answer to a creation: 201, or 200 if its `request_id` had created it before."""
    secret = {"secret": answer.secret} if answer.secret or answer.replayed else {}
    return JsonAnswer(recorded(answer) | secret, 200 if answer.replayed else 201)


def action(caller: Called, ref: Text, project: Project = None, key: IdempotencyKey = None) -> ActionCaller:
    """The sender of a request that acts on what its path names."""
    return ActionCaller(caller, ref, project, key)


Acting = Annotated[ActionCaller, Depends(action)]
