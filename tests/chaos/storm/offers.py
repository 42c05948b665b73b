"""Carries out each command that `interlock stuck` offers, as somebody does who pastes whatever they are told.

What a command must never do is harm healthy work: end a task that runs within its own time limit on a worker that
answers, or its workstream or run; or move an instance that has moved since it was listed.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from interlock.supervisor.environment import environment
from tests.chaos.installation import Installation
from tests.cli.terminal import Answer, Terminal

HEALER, ANOTHER = "healer", "another"
LIMITS = {  # short ones, or nothing would be stuck within the storm
    "INTERLOCK_STUCK_TASK_SECONDS": "15",
    "INTERLOCK_STUCK_WORKSTREAM_SECONDS": "20",
    "INTERLOCK_STUCK_DUE_SECONDS": "15",
    "INTERLOCK_STUCK_SECONDS": "15",
}
LOOKS = ("show", "doctor", "stuck", "up", "worker list", "worker show", "breaker show")  # they change nothing here
AGAIN_SECONDS, LOOK_AGAIN_SECONDS = 10.0, 60.0  # the same command not more often; one that only looks still less
PATIENCE = 4  # a command that succeeded so often and changed nothing does not help
NODE_STOP_SECONDS = 20.0
AWAKE = "it sends heartbeats again"  # why a silent worker is not shut down after all

HEALTHY = """
SELECT t.task_id, t.workstream_id, t.run_id, w.name, w.worker_id
  FROM tasks t JOIN workers w USING (worker_id) JOIN workflow_instances i ON i.id = t.task_id
 WHERE t.state = 'running' AND i.updated_at > now() - make_interval(secs => t.timeout_sec)
   AND w.last_heartbeat > now() - make_interval(secs => %s)"""
BY_HAND = """
SELECT position, workflow_id, workflow_type, trigger, from_state, to_state, seq FROM workflow_transitions
 WHERE position > %s AND (triggered_by = ANY (%s) OR metadata ->> 'operator' = ANY (%s)) ORDER BY position"""
VERSION = "SELECT version FROM workflow_instances WHERE id = %s"
MOVED = "SELECT count(*) FROM workflow_transitions WHERE workflow_id::text = ANY (%s) AND created_at >= %s"
SILENCE = """
SELECT extract(epoch FROM r.accepted_at - w.last_heartbeat)::double precision
  FROM workers w JOIN trigger_requests r ON r.workflow_id = w.worker_id AND r.triggered_by = %s
 WHERE w.worker_id::text = %s OR w.name = %s ORDER BY r.accepted_at DESC LIMIT 1"""


@dataclass(frozen=True)
class Offer:
    """A row of `interlock stuck --json`."""

    workflow_id: str
    version: int
    workflow_type: str
    entity_id: str
    state: str
    reason: str
    command: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Offer":
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})

    def __str__(self) -> str:
        name = f"{self.workflow_type} {self.entity_id} ({self.state}, version {self.version})"
        return f"{name}: {self.reason}. {self.command}"


@dataclass
class Healer:
    """Whoever asks `interlock stuck` and does as it says.

    Attributes:
        projects: whose instances are the storm's; others are left alone.
        done: how often each kind of command was carried out.
        too_late: offers refused because their instance had moved since.
        faults: what should not have been: harm, refusals, and commands that changed nothing.
    """

    installation: Installation
    directory: Path
    projects: Sequence[str]
    asked: int = 0
    done: "Counter[str]" = field(default_factory=Counter)
    too_late: int = 0
    faults: list[str] = field(default_factory=list)
    _tried: "Counter[tuple[str, int, str]]" = field(default_factory=Counter)
    _last: dict[str, float] = field(default_factory=dict)
    _agents: dict[str, Path] = field(default_factory=dict)
    _nodes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _seen: int = 0
    _listed_at: datetime = datetime.min

    @property
    def terminal(self) -> Terminal:
        chosen = self.installation.settings
        return Terminal(chosen.home, environment(chosen) | LIMITS)

    def round(self) -> list[Offer]:
        """Ask once, and carry out everything offered; returns what was listed."""
        offers = self.list_stuck()
        for each in offers:
            self.carry_out(each)
        return offers

    def list_stuck(self, *options: str) -> list[Offer]:
        """What `interlock stuck` lists."""
        ((self._listed_at,),) = self.installation.sql("SELECT now()")
        answer = self.terminal.run("stuck", "--json", "--limit", "1000", *options)
        assert answer.code in (0, 1), answer.said
        self.asked += 1
        return [Offer.of(each) for each in answer.json if each["project"] in self.projects]

    def end(self) -> None:
        """End the nodes that were started because it was offered."""
        for node in self._nodes.values():
            node.send_signal(signal.SIGTERM)
        for node in self._nodes.values():
            try:
                node.wait(NODE_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()

    def carry_out(self, offer: Offer) -> None:
        """Carry out one offered command, and judge what came of it."""
        line = offer.command[max(offer.command.find("interlock "), 0) :] if ": " in offer.command else offer.command
        words = shlex.split(line)[1:]
        look = next((look for look in LOOKS if words[: look.count(" ") + 1] == look.split()), "")
        if not self._is_due(offer.command, LOOK_AGAIN_SECONDS if look else AGAIN_SECONDS):
            return
        if "celery " in line:
            self._celery(line)
            return
        words = self._filled(words)
        healthy = self.installation.sql(HEALTHY, self.installation.settings.silent_seconds)
        answer = self.terminal.run(*words)
        self.done[look or self._kind(words)] += 1
        if "Traceback" in answer.err:
            self.faults.append(f"it crashed: {offer}: {answer.said}")
        if not look:
            self._judge(offer, words, answer)
            self._find_harm(offer, words, healthy)
            if answer.code == 0 and words[:2] == ["worker", "shutdown"]:
                self._find_harm_to_worker(offer, words, healthy)
            self._work(words, answer)

    def _is_due(self, command: str, seconds: float) -> bool:
        """Whether a command was not carried out for so long; then it counts as carried out now."""
        now = time.monotonic()
        due = now - self._last.get(command, -seconds) >= seconds
        self._last |= {command: now} if due else {}
        return due

    def _judge(self, offer: Offer, words: Sequence[str], answer: Answer) -> None:
        self._tried[offer.workflow_id, offer.version, offer.command] += 1
        times = self._tried[offer.workflow_id, offer.version, offer.command]
        (version,) = self.installation.sql(VERSION, offer.workflow_id)[0]
        if answer.code == 0 and version == offer.version and times >= PATIENCE and "claim" not in words:
            self.faults.append(f"it changed nothing, {times} times: {offer}: {answer.said}")
        ((moved,),) = self.installation.sql(MOVED, [offer.workflow_id, *words], self._listed_at)
        if answer.code and (moved or AWAKE in answer.said):
            self.too_late += 1
        elif answer.code:
            self.faults.append(f"it was refused: {offer}: {answer.said}")

    def _find_harm(self, offer: Offer, words: Sequence[str], healthy: Collection[tuple[Any, ...]]) -> None:
        tasks, workstreams, runs = ({str(row[place]) for row in healthy} for place in range(3))
        hands = [HEALER, ANOTHER]
        for position, id_, _, trigger, from_, to, seq in self.installation.sql(BY_HAND, self._seen, hands, hands):
            self._seen = position
            move = f"{trigger}: {from_} -> {to}"
            if str(id_) in tasks or (
                str(id_) in {*workstreams, *runs} and to in ("failed", "cancelled", "canceled", "skipped")
            ):
                self.faults.append(f"it harmed healthy work: {offer}: {move}")
            unguarded = not {"playbook", "--if-silent"}.intersection(words)
            if unguarded and str(id_) == offer.workflow_id and seq != offer.version + 1:
                self.faults.append(f"it moved what had moved since: {offer}: {move}")

    def _find_harm_to_worker(self, offer: Offer, words: Sequence[str], healthy: Collection[tuple[Any, ...]]) -> None:
        at_work = any(words[2] in (name, str(worker)) for *_, name, worker in healthy)
        if "--if-silent" in words:  # judged at the moment of its end, not before
            silent = self.installation.settings.silent_seconds
            at_work = any(0 <= each < silent for (each,) in self.installation.sql(SILENCE, HEALER, words[2], words[2]))
        if at_work:
            self.faults.append(f"it ended a worker with healthy work: {offer}")

    def _filled(self, words: Sequence[str]) -> list[str]:
        """The words with their placeholders filled in."""
        agent = (
            f"agent-{len(self._agents)}"
            if "register" in words
            else next((each for each in words if each in self._agents), "")
        )
        given = {"$(id -un)": HEALER, "SOMEBODY_ELSE": ANOTHER, "WHY": "stuck offered it", "NAME": agent}
        if "register" in words:
            self._agents[agent] = self.directory / f"{agent}.secret"
            words = [*words, "--secret-file", "FILE"]
        given["FILE"] = str(self._agents.get(agent, self.directory / "none.secret"))
        given['{"reason": "WHY"}'] = '{"reason": "stuck offered it"}'
        return [given.get(each, each) for each in words] + (["--yes"] if "playbook" in words else [])

    def _work(self, words: Sequence[str], answer: Answer) -> None:
        """Do what an agent does that registered or claimed: finish what it holds, and claim until nothing fits."""
        if answer.code or words[:2] not in (["worker", "register"], ["worker", "claim"]):
            return
        name, secret = words[2], ["--secret-file", str(self._agents[words[2]])]
        if words[1] == "register":
            self.terminal.run("worker", "claim", name, *secret)
        held = self.terminal.run("worker", "claim", name, "--again", "--json", *secret)
        while held.code == 0 and held.json:
            self.terminal.run("worker", "finish", name, str(held.json[0]["token"]), *secret)
            self.terminal.run("worker", "claim", name, *secret)
            held = self.terminal.run("worker", "claim", name, "--again", "--json", *secret)

    def _celery(self, line: str) -> None:
        """Start the node that is offered, once."""
        settings = [each for each in shlex.split(line) if each.startswith("INTERLOCK_")]
        command = [each for each in shlex.split(line) if each not in settings]
        if "worker" in command and line not in self._nodes:
            env = self.terminal.variables | dict(each.split("=", 1) for each in settings)
            env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
            with (self.directory / "more.log").open("ab") as log:
                self._nodes[line] = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd="/")
            self.done["celery worker"] += 1

    def _kind(self, words: Sequence[str]) -> str:
        """`fire resume`, `worker register`, `override reset-task`."""
        return " ".join([words[0], words[2]] if words[0] == "fire" else words[:2])
