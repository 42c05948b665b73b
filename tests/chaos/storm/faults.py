"""What goes wrong in the storm: nodes, their pool processes and commands are killed, stopped for a while, or both."""

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import psutil

from interlock.supervisor.processes import status
from tests.chaos.installation import Installation

NODES = ("triggers1", "triggers2", "effects", "gates", "work1", "deliveries", "beat")
POOLS = ("work1", "work1", "gates", "effects")
STOPPED_ROUNDS = (1, 4)  # a stopped process goes on after so many further faults


@dataclass
class Faults:
    """One fault at each call, by chance; `made` counts them by kind."""

    installation: Installation
    chances: Random
    made: "Counter[str]" = field(default_factory=Counter)
    _stopped: dict[psutil.Process, int] = field(default_factory=dict)

    def strike(self) -> None:
        """Let one thing go wrong; what has ended meanwhile cannot be hit, and is left out."""
        self._let_go_on()
        kinds: Sequence[tuple[int, str, Callable[[], psutil.Process | None]]] = (
            (5, "pool process killed", lambda: self._pool_process(POOLS)),
            (4, "command killed", self._command),
            (3, "node killed", lambda: self._node(NODES)),
            (2, "work node killed", lambda: self._node(("work1",))),
            (2, "pool process stopped for a while", lambda: self._pool_process(("work1",))),
        )
        (_, kind, find) = self.chances.choices(kinds, [weight for weight, _, _ in kinds])[0]
        with contextlib.suppress(psutil.Error, StopIteration, ProcessLookupError):
            if (victim := find()) is None:
                return
            if "stopped" in kind:
                victim.suspend()
                self._stopped[victim] = self.chances.randint(*STOPPED_ROUNDS)
            else:
                os.kill(victim.pid, signal.SIGKILL)
            self.made[kind] += 1

    def end(self) -> None:
        """Let everything that was stopped go on."""
        self._stopped = dict.fromkeys(self._stopped, 1)
        self._let_go_on()

    def _let_go_on(self) -> None:
        self._stopped = {each: left - 1 for each, left in self._stopped.items()}
        for each in [each for each, left in self._stopped.items() if left <= 0]:
            del self._stopped[each]
            with contextlib.suppress(psutil.Error):
                each.resume()

    def _node(self, names: Sequence[str]) -> psutil.Process | None:
        name = self.chances.choice(names)
        known = {part["name"]: part for part in status.recorded(self.installation.home)}
        return psutil.Process(known[name]["pid"]) if known.get(name, {}).get("pid") else None

    def _pool_process(self, names: Sequence[str]) -> psutil.Process | None:
        node = self._node([self.chances.choice(names)])
        return self._one_of(node.children() if node else [])

    def _command(self) -> psutil.Process | None:
        """A process of a task's or gate's command, or its shim."""
        found = [
            process
            for name in ("work1", "gates")
            if (node := self._node([name]))
            for worker in node.children()
            for process in worker.children(recursive=True)
        ]
        return self._one_of(found)

    def _one_of(self, found: Sequence[psutil.Process]) -> psutil.Process | None:
        return self.chances.choice(found) if found else None
