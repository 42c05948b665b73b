"""External agents as workers: what Celery's processes do, for a program of your own.

from workers.crew.agent import Agent

with Agent("agent-7", capabilities=["python"]) as agent:
    while claim := agent.claim():
        agent.heartbeat()  # at least every heartbeat_seconds, also while working
        agent.finish(claim.token, exit_code=0, output={"summary": "done"})
"""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from db import crew, instances
from db.connect import transaction
from workers.crew import claims, member, report
from workers.crew.claims import Claim, StaleClaim
from workers.crew.member import Enlistment
from workers.firing import checked
from workers.runtime import Runtime
from workers.runtime import runtime as process_runtime
from workflows.errors import InterlockError, Refused


class ShutDown(Refused):
    """The worker is shut down: it was silent for too long, or somebody asked for it. Register again to go on."""


def heartbeat(name: str, runtime: Runtime | None = None) -> str:
    """Say that a worker is alive, whoever it is: an agent, a process, or one of the execution engine (SSOT 2.1).

    Args:
        name: the name it registered under (a `uet_worker`'s entity id, or `uet_worker/ID`), or its UUID.
        runtime: this process's, unless given.

    Returns:
        The state it is in.

    Raises:
        UnknownInstance: no worker has that name.
        ShutDown: it is shut down or TERMINATED.
    """
    chosen = runtime or process_runtime()
    worker_id = member.find_any(chosen, name)
    alive = member.heartbeat(chosen, [worker_id])
    if not alive:
        raise ShutDown(f"worker {name!r} is shut down; register again")
    return str(alive[worker_id]["state"])


class Agent:
    """A worker that is no Celery process. It claims tasks of kind `agent` that fit it, and reports under its claims."""

    def __init__(
        self,
        name: str,
        *,
        capabilities: Iterable[str] = (),
        affinity: Mapping[str, Any] | None = None,
        max_concurrent_tasks: int = 1,
        runtime: Runtime | None = None,
    ) -> None:
        """Say who it is; `register`, or entering the `with` block, makes it known.

        Args:
            name: unique among the workers that are alive.
            capabilities: what it can do; `interlock:agent` comes with being one.
            affinity: `{"workstreams": [names or ids]}` where it wants tasks of these only (SSOT 1.5.6).
            max_concurrent_tasks: how many tasks it takes at once.
            runtime: this process's, unless given.
        """
        self.name = name
        self.id: UUID | None = None
        self._runtime = runtime or process_runtime()
        self._enlistment = Enlistment(
            name=name,
            capabilities=tuple(dict.fromkeys([*capabilities, member.AGENT])),
            affinity=affinity or {},
            max_concurrent_tasks=max_concurrent_tasks,
            worker_type="agent",
        )

    @classmethod
    def called(cls, name: str, runtime: Runtime | None = None) -> "Agent":
        """The agent that registered under a name, or has that UUID. Raises `UnknownInstance`."""
        agent = cls(name, runtime=runtime)
        agent.id = member.find(agent._runtime, name)["worker_id"]
        return agent

    def __enter__(self) -> "Agent":
        self.register()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def register(self) -> UUID:
        """Become a worker, idle and ready to claim; its id.

        Raises:
            AlreadyExists: a worker of that name is alive.
            BadInput: the name, capabilities or affinity are none.
        """
        self.id = member.enlist(self._runtime, self._enlistment)
        return self.id

    def claim(self) -> Claim | None:
        """Claim the next fitting task; it is running when this returns. None: nothing fits, or no room.

        Raises:
            ShutDown: this worker is shut down.
        """
        self.heartbeat()
        return claims.take(self._runtime, self._known)

    def heartbeat(self) -> str:
        """Say that it is alive; the state it is in.

        Raises:
            ShutDown: this worker is shut down.
        """
        alive = member.heartbeat(self._runtime, [self._known])
        if not alive:
            raise ShutDown(f"worker {self.name!r} is shut down; register again")
        return str(alive[self._known]["state"])

    def holds(self, token: int) -> bool:
        """Does a claim still count? If not, stop working on it."""
        return claims.still_held(self._runtime, token)

    def finish(
        self,
        token: int,
        *,
        exit_code: int | None = None,
        error: str | None = None,
        output: Mapping[str, Any] | None = None,
    ) -> str:
        """Report how a claimed task ended, once; again is harmless. The trigger that was fired.

        Args:
            token: the claim's.
            exit_code: 0, unless an error is given.
            error: what went wrong: the task is tried again while it has retries left.
            output: what there is to show for it; kept in the task's history.

        Raises:
            StaleClaim: the claim no longer counts.
            BadInput: the output is no JSON object of acceptable size.
        """
        shown = checked("output", output or {}, self._runtime.settings.context_limit_bytes)
        told = report.of_agent(self._terms(token), exit_code=exit_code, error=error, output=shown)
        claims.finish(self._runtime, self._known, token, told)
        return told.trigger

    def leave(self, *, wait_for_tasks: bool = False) -> int:
        """Shut down: what it still holds is given back, or, if so asked, finished first; how many tasks that is."""
        if wait_for_tasks:
            return member.drain(self._runtime, self._known)
        member.leave(self._runtime, self._known, "left")
        return 0

    @property
    def _known(self) -> UUID:
        if self.id is None:
            raise NotRegistered(f"worker {self.name!r} is not registered yet: call register() first")
        return self.id

    def _terms(self, token: int) -> Mapping[str, Any]:
        with transaction(self._runtime.database) as connection:
            task = crew.task_of(connection, self._known, token)
            if task is None:
                raise StaleClaim(f"worker {self.name!r} has no claim {token}")
            return dict(instances.find(connection, str(task))["context"])


class NotRegistered(InterlockError):
    """The agent is no worker yet. Call `register`, or use it in a `with` block."""
