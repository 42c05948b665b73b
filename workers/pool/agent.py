"""External agents as workers: lets a program of your own take tasks, as Celery's pool processes do.

from interlock import Agent

with Agent("agent-7", capabilities=["python"]) as agent:
    while claim := agent.claim():
        agent.heartbeat()  # at least every heartbeat_seconds, also while working
        agent.finish(claim.token, exit_code=0, output={"summary": "done"})
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.orchestration.claims import OwnClaim, own
from interlock.workers.engine import worker_secrets
from interlock.workers.engine.trigger_request import check_names, check_spent, checked
from interlock.workers.pool import agent_log, claims, registration, report
from interlock.workers.pool.claims import Claim, StaleClaim
from interlock.workers.pool.output_files import LOG_FILE, path_of
from interlock.workers.pool.registration import Registration, WorkerDescription
from interlock.workers.runtime import Runtime
from interlock.workers.runtime import runtime as process_runtime
from interlock.workflows.errors import BadInput, InterlockError, Refused
from interlock.workflows.input import limits
from interlock.workflows.input.arguments import FreeText, door
from interlock.workflows.output.suggestions import offered


class ShutDown(Refused):
    """The worker is shut down: it was silent for too long, or somebody asked for it. Register again to go on."""


@door
def heartbeat(name: str, *, secret: FreeText, runtime: Runtime | None = None) -> str:
    """Send a worker's heartbeat: for an agent, a process, or a worker of the execution engine (UET-1).

    Args:
        name: the name it registered under (a `uet_worker`'s entity id, or `uet_worker/ID`), or its UUID.
        secret: of its registration.
        runtime: default: this process's.

    Returns:
        The worker's state.

    Raises:
        UnknownInstance: no worker has that name.
        NotYours: the secret is not its.
        ShutDown: it is shut down or TERMINATED.
    """
    proof, chosen = worker_secrets.checked(secret), runtime or process_runtime()
    return _beat(chosen, Registration(registration.find(chosen, name)["worker_id"], proof), name)


def _beat(runtime: Runtime, registered: Registration, name: str) -> str:
    alive = registration.heartbeat(runtime, [registered])
    if not alive:
        raise ShutDown(f"worker {name!r} is shut down; register again")
    return str(alive[registered.worker_id]["state"])


class Agent:
    """A worker that is not a Celery process. It claims the tasks with `agent:` in plans, and reports on them."""

    @door
    def __init__(
        self,
        name: str,
        *,
        capabilities: Iterable[str] = (),
        affinity: Mapping[str, Any] | None = None,
        max_concurrent_tasks: int = 1,
        runtime: Runtime | None = None,
    ) -> None:
        """Describe the worker. `register`, or entering the `with` block, registers it.

        Args:
            name: unique among the living workers.
            capabilities: what it can do; every agent also has `interlock:agent`.
            affinity: `{"workstreams": [names or ids], "phases": [names]}` to take tasks of these only (WORKER-3).
            max_concurrent_tasks: how many tasks it takes at once.
            runtime: default: this process's.
        """
        self.name = name
        self._registered: Registration | None = None
        self._runtime = runtime or process_runtime()
        self._description = WorkerDescription(
            name=name,
            capabilities=tuple(dict.fromkeys([*capabilities, registration.AGENT])),
            affinity=affinity or {},
            max_concurrent_tasks=max_concurrent_tasks,
            worker_type="agent",
        )

    @classmethod
    @door
    def called(cls, name: str, *, secret: FreeText, runtime: Runtime | None = None) -> "Agent":
        """Speak for an agent that registered before, or for a `uet_worker` (UET-7), by its secret.

        With another secret, whatever it does raises `NotYours`.

        Args:
            name: the name it registered under (a `uet_worker`'s entity id, or `uet_worker/ID`), or its UUID.
            secret: its `secret` after it registered. If that is lost, an operator can shut the worker down, as its
                silence does; then register it again.
            runtime: default: this process's.

        Returns:
            The agent.

        Raises:
            UnknownInstance: no worker has that name.
            BadInput: that cannot be a secret.
        """
        proof, agent = worker_secrets.checked(secret), cls(name, runtime=runtime)
        agent._registered = Registration(registration.find(agent._runtime, name)["worker_id"], proof)
        return agent

    @property
    def id(self) -> UUID | None:
        """The worker's id; None: it is not registered yet."""
        return self._registered.worker_id if self._registered else None

    @property
    def secret(self) -> str:
        """By which another process can speak for this worker (`called`). Keep it to yourself: nothing else shows it.

        Raises:
            NotRegistered: it is not registered yet.
        """
        return self._known.secret

    def __enter__(self) -> "Agent":
        self.register()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def register(self) -> UUID:
        """Register as a worker, idle and ready to claim.

        Returns:
            The worker's id.

        Raises:
            AlreadyExists: a living worker has that name.
            BadInput: the name, capabilities or affinity are not valid.
        """
        self._registered = registration.register(self._runtime, self._description)
        return self._registered.worker_id

    def claim(self) -> Claim | None:
        """Claim the next fitting task; it is running when this returns.

        Returns:
            The claim: the task's name (`task`), its `context`, its `inputs`, and the `token` to report under. None: no
            task fits, or the worker is full.

        Raises:
            NotYours: it is called by another secret.
            ShutDown: this worker is shut down.
        """
        self.heartbeat()
        return claims.take(self._runtime, self._known)

    def claims(self) -> list[Claim]:
        """The claims that this worker holds: for an agent that lost a token, or was restarted.

        Returns:
            Them, as `claim` returned them, the oldest first. A claim that was revoked is not among them.

        Raises:
            NotYours: it is called by another secret.
            ShutDown: this worker is shut down.
        """
        self.heartbeat()
        return claims.held(self._runtime, self._known)

    def heartbeat(self) -> str:
        """Send a heartbeat.

        Returns:
            The worker's state.

        Raises:
            NotYours: it is called by another secret.
            ShutDown: this worker is shut down.
        """
        return _beat(self._runtime, self._known, self.name)

    @door
    def holds(self, token: int) -> bool:
        """Check whether a claim is still valid. If not, stop working on its task.

        Args:
            token: the claim's token.

        Returns:
            Whether it is valid.
        """
        return claims.is_current(self._runtime, token)

    @door
    def log(self, token: int, text: FreeText) -> bool:
        """Say something of the work on a claimed task: `interlock run logs` shows it, also while the work goes on.

        It is kept on the machine on which this is called, and deleted after `INTERLOCK_KEEP_OUTPUT_DAYS`; history has
        its digest.

        Args:
            token: the claim's token.
            text: what to append, newlines included.

        Returns:
            Whether it was kept. It is not beyond `INTERLOCK_TASK_OUTPUT_BYTES`.

        Raises:
            StaleClaim: the claim is no longer valid.
            NotYours: it is called by another secret.
        """
        self.heartbeat()
        claim = self._own(token)
        if not claim.held:
            raise StaleClaim(f"claim {claim.claim_id} is no longer valid")
        return agent_log.append(self._file(claim), text, self._runtime.settings.task_output_bytes)

    @door
    def finish(
        self,
        token: int,
        *,
        exit_code: int | None = None,
        error: FreeText | None = None,
        output: Mapping[str, Any] | None = None,
        result: Any = None,
        spent: Mapping[str, float] | None = None,
    ) -> str:
        """Report how a claimed task ended. Repeating the report is harmless.

        Args:
            token: the claim's token.
            exit_code: default 0, unless an error is given.
            error: what went wrong. The task is tried again while it has retries left.
            output: what it did, such as `stdout`; kept in the task's history.
            result: any JSON value of at most 64 KiB for later tasks, which get it as an input; kept with the event
                that completes the work. Default: none.
            spent: what it cost: `tokens`, a whole number, and `usd`; kept in history, and counted by budgets (BRAKE-4).

        Returns:
            The trigger that was fired on the task.

        Raises:
            StaleClaim: the claim is no longer valid.
            NotYours: it is called by another secret.
            BadInput: the output is not a JSON object of acceptable size, or the result not JSON of at most 64 KiB.
        """
        shown = checked("output", output or {}, self._runtime.settings.context_limit_bytes)
        check_names("output", shown)
        if "result" in shown:
            raise BadInput("output.result: the result is given beside the output: finish(token, result=…)")
        if LOG_FILE in shown:
            raise BadInput(f"output.{LOG_FILE}: this is the digest of what log(token, …) kept: choose another name")
        if spent is not None:
            shown = {**shown, "spent": dict(spent)}
        check_spent(shown)
        limits.checked("result", result, limits.RESULT_BYTES)
        claim = self._own(token)
        logged = agent_log.sealed(self._file(claim))
        said: dict[str, Any] = {"exit_code": exit_code, "error": error, "output": shown, "result": result}
        outcome = report.of_agent(self._terms(claim), logged=logged, **said)
        claims.finish(self._runtime, self._known, token, outcome)
        return outcome.trigger

    @door
    def leave(self, *, wait_for_tasks: bool = False) -> int:
        """Shut the worker down. Its tasks are given back to others.

        Args:
            wait_for_tasks: finish its tasks first, without claiming new ones.

        Returns:
            The number of tasks it still has to finish; 0 without `wait_for_tasks`.

        Raises:
            NotYours: it is called by another secret.
        """
        if wait_for_tasks:
            return registration.drain(self._runtime, self._known)
        registration.leave(self._runtime, self._known)
        return 0

    @property
    def _known(self) -> Registration:
        if self._registered is None:
            raise NotRegistered(f"worker {self.name!r} is not registered yet: call register() first")
        return self._registered

    def _own(self, token: int) -> OwnClaim:
        with transaction(self._runtime.database) as connection:
            found = own(connection, self._known.worker_id, token)
        if found is None:
            those = offered("worker", "claim", self.name, again=True)
            raise StaleClaim(f"worker {self.name!r} has no claim under this token: `{those}` shows those it holds")
        return found

    def _file(self, claim: OwnClaim) -> Path:
        return path_of(self._runtime.settings, claim.run_id, claim.task_id, claim.claim_id)

    def _terms(self, claim: OwnClaim) -> Mapping[str, Any]:
        with transaction(self._runtime.database) as connection:
            return dict(instances.by_id(connection, claim.task_id)["context"])


class NotRegistered(InterlockError):
    """The agent is not registered yet. Call `register`, or use it in a `with` block."""
