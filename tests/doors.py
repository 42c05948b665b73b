"""Find every public door, with a valid call for each, and variants of that call with one hostile value."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

import demo
from interlock import workers
from interlock.db.core.deprecations import DefinitionPart
from interlock.db.operations.handovers import Choice
from interlock.workers.access.tokens import Principal
from interlock.workers.client.client import Client
from interlock.workers.definitions.instance_migration import Migration
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.overrides.budgets import Budgeted
from interlock.workers.overrides.limits import LimitedName
from interlock.workers.overrides.subscriptions import WantedEvents
from interlock.workers.overrides.tokens import TokenTerms
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.pool.agent import Agent
from interlock.workers.supervision.actions import ActionOrder
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.recovery import JobError, WorkerError
from interlock.workers.supervision.supervised_workers import Supervisor
from interlock.workflows.forms.start_log import StartLog
from interlock.workflows.input.arguments import judges_of
from interlock.workflows.plan.read import read_plan
from tests.hostile import HOSTILE, KINDS

PLAN = b"{name: x, workstreams: [{id: w, tasks: [{id: t, shell: 'true'}]}]}"
APP = {"interlock.workers.main", "interlock.workers.node"}  # not imported, because they make this process's Celery app
ABOUT_ONE = (
    "fail_task", "unblock_task", "skip_step", "fail_workstream", "validate_workstream", "drop_patch", "reset_breaker",
    "recover_workstream", "emergency_rollback", "reset_circuit_breaker", "rerun_gate", "retry_workstream",
)  # fmt: skip
REMOVING = ("propose_removal", "withdraw_removal", "approve_removal")
Given = dict[str, Any]


def found() -> dict[str, Callable[..., Any]]:
    """Name -> door, for all doors of `workers` and the demo."""
    doors: dict[str, Callable[..., Any]] = {}
    packages = (pkgutil.walk_packages(package.__path__, f"{package.__name__}.") for package in (workers, demo))
    for module in chain.from_iterable(packages):
        if module.name in APP:
            continue
        for each in _within(importlib.import_module(module.name)):
            doors[each.__qualname__] = each
    return doors


def _within(module: Any) -> Iterator[Any]:
    for each in vars(module).values():
        if getattr(each, "__module__", "") != module.__name__:
            continue
        inside = vars(each).values() if inspect.isclass(each) else (each,)
        for one in inside:
            if getattr(one := getattr(one, "__func__", one), "is_door", False):
                yield one


@dataclass
class Scene:
    """The objects that doors are called with: a client, a project with a story, and new names on demand."""

    client: Client
    project: str
    root: Path

    def __post_init__(self) -> None:
        self.story = self.client.create("story", "S-1", project=self.project)["id"]
        self.agent = Agent("bystander", runtime=self.client.runtime)
        self.agent.register()
        (self.root / "output").write_text("x")
        (self.root / "pulls.jsonl").write_text("{}\n")

    @property
    def name(self) -> str:
        """A new name."""
        return f"N-{uuid7()}"

    @cached_property
    def given(self) -> Mapping[str, Callable[[], Given]]:
        """Door -> a function that makes new arguments of a valid call; parameters without data are left out."""
        runtime, project, story = self.client.runtime, self.project, self.story
        order, supervisor, jobs = ActionOrder("ann", "why"), Supervisor(self.client), Jobs(self.client)
        to_worker = {"self": supervisor, "order": order}
        to_job = {"self": jobs, "order": order}
        to_task = {"runtime": runtime, "ref": "nobody", "order": OverrideOrder("ann", "why")}
        part, to_part = (
            DefinitionPart("story", "1.0.0", "state", "nowhere"),
            {"runtime": runtime, "order": OverrideOrder("ann", "why")},
        )
        narrowing = {"runtime": runtime, "type_": "story", "trigger": "unblock"}
        narrowing |= {"order": OverrideOrder("ann", "why")}
        handing = {"runtime": runtime, "order": OverrideOrder("ann", "why")}
        handing |= {"choice": Choice("story", "1.0.0", project, [story])}
        subscription = {"runtime": runtime, "order": OverrideOrder("ann", "why")}
        budgeted = {"runtime": runtime, "order": OverrideOrder("ann", "why")}
        budgeted |= {"whose": Budgeted("actor", self.name, project), "resource": "triggers"}
        braked = {"runtime": runtime, "name": self.name, "order": OverrideOrder("ann", "why"), "project": project}
        limited = {"runtime": runtime, "counted": LimitedName("key", self.name), "order": OverrideOrder("ann", "why")}
        birth = {"self": self.client, "type_": "story", "project": project, "context": {"a": 1}, "by": "ann"}
        breaker = {"runtime": runtime, "project": project, "tool_id": "make"}
        following = {"self": self.client, "cursor": "0", "project": None, "every_project": False, "types": ["story"]}
        moves = ("pause", "complete", "terminate")
        fire = {"trigger": "block", "by": "ann", "request_id": "", "data": {"a": 1}}
        return {
            "Operations.create": lambda: birth | {"entity_id": self.name},
            "Operations.birth": lambda: birth | {"entity_id": self.name},
            "Operations.create_many": lambda: {
                "self": self.client,
                "wanted": [self.client.birth("story", self.name, project=project)],
            },
            "Operations.fire": lambda: {"self": self.client, "ref": story, "after": None, **fire},
            "Operations.fire_many": lambda: {"self": self.client, "firings": [Firing(story, after=None, **fire)]},
            "Operations.wait": lambda: {"self": self.client, "request_ids": [], "timeout_seconds": 0.1},
            "Operations.show": lambda: {"self": self.client, "ref": story},
            "Operations.history": lambda: {"self": self.client, "ref": story, "after_seq": 0},
            "Operations.verify": lambda: {"self": self.client, "ref": story},
            "Client.events": lambda: following | {"quiet_seconds": 0.1},
            "Operations._reader": lambda: following,
            "shut_down": lambda: {
                "runtime": runtime, "name": "bystander", "by": "ann", "reason": "why", "now": False, "secret": "",
            },
            "dismiss": lambda: {"runtime": runtime, "worker_id": uuid7(), "order": OverrideOrder("ann", "why")},
            "redrive": lambda: {
                "runtime": runtime, "ids": [self.name], "order": OverrideOrder("ann", "why"), "project": project,
            },
            "move": lambda: {
                "runtime": runtime, "name": "bystander", "trigger": "suspend", "by": "ann", "reason": "why",
            },
            "submit": lambda: {
                "runtime": runtime, "plan": read_plan(PLAN), "by": "ann", "directory": self.root, "run_name": self.name,
                "priority": 0,
            },
            "resume": lambda: {"runtime": runtime, "ref": "nobody", "by": "ann", "run_name": "again"},
            "create_schedule": lambda: {
                "client": self.client, "name": self.name, "times": {"every_seconds": 90}, "by": "ann", "catch_up": None,
                "does": {"create": {"type": "story", "name": "S-%due"}},
            },
            "firing": lambda: {"client": self.client, "ref": story, "trigger": "block", "data": {"a": 1}},
            "submitting": lambda: {
                "client": self.client, "plan": read_plan(PLAN), "directory": self.root, "by": "ann", "priority": 0,
            },
            "standing": lambda: {"client": self.client, "ref": "nobody"},
            "standings": lambda: {"client": self.client, "project": project, "ended": False},
            "roll_back": lambda: {
                "runtime": runtime, "ledger_ref": "nobody", "by": "ann", "reason": "why", "mended": "abcdef0",
            },
            "order_rollback": lambda: {
                "runtime": runtime, "ref": "nobody", "order": OverrideOrder("ann", "why"), "mended": "abcdef0",
            },
            "override_roll_back": lambda: to_task | {"mended": "abcdef0"},
            "find_effect": lambda: {"runtime": runtime, "effect_id": "nobody"},
            "retry_effect": lambda: {"runtime": runtime, "effect_id": "nobody", "order": OverrideOrder("ann", "why")},
            "compensation_plan": lambda: {"runtime": runtime, "ledger_ref": "nobody"},
            "find_regression": lambda: {
                "runtime": runtime, "gate": "true", "run_ref": "nobody", "workstream_ref": None, "timeout_seconds": 1.0,
            },
            "correct_patch": lambda: {
                "runtime": runtime, "based_on": "nobody", "text": "x", "order": OverrideOrder("ann", "why"),
                "workstream": "nobody",
            },
            "grant": lambda: {"runtime": runtime, "names": [self.name], "by": "ann", "reason": "x", "until": None},
            "revoke": lambda: {"runtime": runtime, "name": "nobody", "by": "ann", "reason": "x"},
            "issue": lambda: {
                "runtime": runtime, "terms": TokenTerms(self.name, "agent", ("P",)),
                "order": OverrideOrder("ann", "why"),
            },
            "make_link": lambda: {
                "runtime": runtime, "terms": TokenTerms(self.name, "agent", ("P",)),
                "order": OverrideOrder("ann", "why"),
            },
            "open_session": lambda: {"runtime": runtime, "link": "nothing"},
            "end_session": lambda: {"runtime": runtime, "principal": Principal(UUID(int=0), "ann", "agent", None)},
            "revoke_tokens": lambda: {"runtime": runtime, "named": "nobody", "order": OverrideOrder("ann", "why")},
            "list_tokens": lambda: {"runtime": runtime, "project": project, "ended": True},
            "narrow": lambda: narrowing | {"to": ["operator"], "project": self.name},
            **dict.fromkeys(("freeze", "thaw"), lambda: to_part | {"phase": "nobody", "project": self.name}),
            "set_limit": lambda: limited | {"at_once_most": 3, "starts": 5, "per_seconds": 60.0},
            "set_budget": lambda: budgeted | {"most": 100.0, "per_seconds": 60.0},
            "remove_budget": lambda: budgeted | {"whose": Budgeted("actor", "nobody")},
            "put_brake": lambda: braked | {"kind": "actor"},
            "release_brake": lambda: braked,
            "remove_limit": lambda: limited | {"counted": LimitedName("key", "nobody")},
            "subscribe": lambda: subscription
            | {"name": self.name, "url": "https://a.example/", "secrets": ["file:own"], "wanted": WantedEvents()},
            "change_subscription": lambda: subscription | {"ref": "nobody", "change": "pause"},
            "skip_event": lambda: subscription | {"ref": "nobody"},
            "replay_events": lambda: subscription | {"ref": "nobody", "start": "evt_" + "0" * 26},
            "widen_again": lambda: narrowing | {"project": self.name},
            "freeze": lambda: handing | {"order": OverrideOrder("ann", "why", dry_run=True)},
            "settle": lambda: handing | {"started": StartLog(), "back": True},
            "write_frozen": lambda: {
                "runtime": runtime,
                "choice": Choice("story", "1.0.0", project),
                "path": self.root / "handover.jsonl",
            },
            "migrate": lambda: {
                "database": runtime.database, "catalogue": runtime.catalogue,
                "order": Migration("story", "1.0.0", "9.0.0", "ann", "why", {"design": "design"}, [story]),
            },
            "replay": lambda: {
                "client": self.client, "path": self.root / "pulls.jsonl", "reviewer": "ann", "patience_seconds": 0.1,
            },
            "calling": lambda: breaker | {"by": "ann", "lease_seconds": 1.0},
            "known": lambda: breaker,
            "reset": lambda: breaker | {"order": OverrideOrder("ann", "why")},
            "listed": lambda: {"runtime": runtime, "project": project, "limit": 5},
            "configured": lambda: {"runtime": runtime, "breaker_id": uuid7(), "limit": 5},
            "configure": lambda: breaker
            | {"by": "ann", "reason": "why", "failure_threshold": 2, "cooldown_seconds": 1.0, "success_threshold": 2},
            "announce": lambda: to_part | {"part": part, "guide": "use another", "remove_after": None},
            "undo": lambda: to_part | {"part": part},
            **dict.fromkeys(REMOVING, lambda: to_part | {"type_": "story", "version": "1.0.0"}),
            "complete_task": lambda: to_task | {"output": self.root / "output"},
            "reset_task": lambda: to_task | {"clear_retry_count": False},
            **dict.fromkeys(ABOUT_ONE, lambda: to_task),
            "Supervisor.create": lambda: {
                "self": supervisor, "project": project, "workspace_id": "w", "capacity": 1,
                "order": order,
            },
            **{f"Supervisor.{each}": lambda: to_worker | {"ref": self.worker} for each in moves},
            "Supervisor.resume": lambda: to_worker | {"ref": self.worker, "resources": ["cpu"]},
            "Supervisor.start": lambda: to_worker | {"ref": self.worker, "resources": ["cpu"], "tasks": ["a"]},
            "Supervisor.complete": lambda: to_worker | {"ref": self.worker, "tasks": ["a"]},
            "Supervisor.heartbeat": lambda: {"self": supervisor, "ref": self.worker, "secret": "x" * 43},
            "Supervisor.relieve": lambda: to_worker | {"ref": self.worker, "error": "x"},
            "Supervisor.fail": lambda: to_worker | {"ref": self.worker, "error": "x", "retryable": False},
            "Jobs.submit": lambda: {
                "self": jobs, "description": "x", "project": project, "parent": None, "depth": 0,
                "worker_count": 1, "timeout_seconds": 60.0, "order": order,
            },
            **{f"Jobs.{each}": lambda: to_job | {"ref": self.job} for each in ("validate", "allocate")},
            **{f"Jobs.{each}": lambda: to_job | {"ref": self.job, "error": "x"} for each in ("fail", "cancel")},
            "Jobs.succeed": lambda: to_job | {"ref": self.job, "result": {"a": 1}},
            **{each: lambda: {"self": jobs, "ref": self.job} for each in ("Actions.show", "Jobs.tree")},
            "Actions.newest": lambda: {"self": jobs, "status": "PENDING", "limit": 5},
            "recover_worker": lambda: {
                "client": self.client, "ref": self.worker, "error_kind": WorkerError.UNRECOVERABLE,
                "order": order, "error": "x",
            },
            "recover_job": lambda: {
                "client": self.client, "ref": self.job, "error_kind": JobError.TIMEOUT, "order": order,
                "error": "x", "worker": None,
            },
            "find": lambda: {"runtime": runtime, "name": "bystander"},
            "heartbeat": lambda: {"name": "bystander", "secret": self.agent.secret, "runtime": runtime},
            "Agent.__init__": lambda: {
                "self": object.__new__(Agent), "name": self.name, "capabilities": ["x"],
                "affinity": {"workstreams": []}, "max_concurrent_tasks": 1, "runtime": runtime,
            },
            "Agent.called": lambda: {
                "cls": Agent, "name": "bystander", "secret": self.agent.secret, "runtime": runtime,
            },
            "Agent.holds": lambda: {"self": self.agent, "token": 1},
            "Agent.log": lambda: {"self": self.agent, "token": 1, "text": "said"},
            "Agent.finish": lambda: {
                "self": self.agent, "token": 1, "exit_code": 0, "error": None, "output": {"a": 1},
            },
            "Agent.leave": lambda: {"self": self._leaving(), "wait_for_tasks": False},
        }  # fmt: skip

    @property
    def worker(self) -> UUID:
        """A new idle worker under a supervisor."""
        return UUID(str(Supervisor(self.client).create(project=self.project).subject["id"]))

    @property
    def job(self) -> UUID:
        """A new job."""
        return UUID(str(Jobs(self.client).submit("x", project=self.project).subject["id"]))

    def _leaving(self) -> Agent:
        agent = Agent(self.name, runtime=self.client.runtime)
        agent.register()
        return agent


def called(door: Callable[..., Any], given: Given) -> Any:
    """Call a door; if it returns a context manager, generator or agent, begin that as well."""
    answer = door(**given)
    if inspect.isgenerator(answer):
        return next(answer, None)
    if hasattr(answer, "__enter__") and not isinstance(answer, Agent | Client):
        with answer:
            return None
    if door.__qualname__ == "Agent.__init__":
        return given["self"].register()
    return answer


def cells(door: Callable[..., Any], sound: Given) -> Iterator[tuple[str, Callable[[], Given]]]:
    """Pairs (place and kind, function that makes the arguments): each hostile value in every place that takes data."""
    for parameter in judges_of(inspect.unwrap(door)):
        for kind, make in (HOSTILE | KINDS).items():
            for place, made in _variants(sound.get(parameter), kind, make):
                yield f"{parameter}{place}: {kind}", partial(_changed, sound, parameter, made)


def _changed(sound: Given, parameter: str, made: Callable[[], Any]) -> Given:
    return sound | {parameter: made()}


def _variants(sound: Any, kind: str, make: Callable[[], Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A hostile value in place of a valid one, and in each place inside it."""
    if isinstance(sound, Mapping):
        if kind in HOSTILE:
            yield ".given", lambda: {**sound, "given": make()}
        if not kind.startswith(("objects", "an object of")):  # which may be valid
            yield "", make
        return
    yield "", make
    if isinstance(sound, list):
        for place, made in _variants(sound[0], kind, make) if sound else [("", make)]:
            yield f"[0]{place}", lambda made=made: [made()]
    elif is_dataclass(sound) and not isinstance(sound, type):
        for each in fields(sound):
            if each.name != "definition":
                for place, made in _variants(getattr(sound, each.name), kind, make):
                    yield f".{each.name}{place}", partial(_replaced, sound, each.name, made)


def _replaced(sound: Any, name: str, made: Callable[[], Any]) -> Any:
    return replace(sound, **{name: made()})
