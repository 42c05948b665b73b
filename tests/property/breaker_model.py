"""What a circuit breaker should do, said again from the specification (docs/spec/breaker.md)."""

from dataclasses import dataclass
from typing import Literal

from interlock.workers.circuit_breakers import Call
from interlock.workers.pool.claims import Claim


@dataclass(eq=False)
class Caller:
    """Somebody whose call was let through: with a task's claim, or for himself with a lease."""

    how: Claim | Call
    period: int
    dead: bool = False


@dataclass
class Model:
    """What the specification says, in memory. `last`: who had the trial last; `held`: he has it."""

    threshold: int
    state: Literal["CLOSED", "OPEN", "HALF_OPEN"] = "CLOSED"
    failures: int = 0
    period: int = 0
    last: Caller | None = None
    held: bool = False

    @property
    def lets_through(self) -> bool:
        return self.state == "CLOSED" or (self.state == "HALF_OPEN" and not self.held)

    def admit(self, caller: Caller) -> None:
        if self.state == "HALF_OPEN":
            self.last, self.held = caller, True

    def give_back(self, caller: Caller) -> None:
        if self.last is caller:
            self.held = False

    def report(self, caller: Caller, *, fails: bool, period: int) -> None:
        if self.state == "HALF_OPEN" and self.last is caller:
            self._become("OPEN" if fails else "CLOSED")
        elif self.state == "CLOSED" and not (fails and period != self.period):
            self.failures = self.failures + 1 if fails else 0
            if self.failures == self.threshold:
                self._become("OPEN")

    def cool_down(self) -> None:
        if self.state == "OPEN":
            self._become("HALF_OPEN")

    def _become(self, state: Literal["CLOSED", "OPEN", "HALF_OPEN"]) -> None:
        self.state, self.last, self.held = state, None, False
        self.period += 1
        self.failures = 0 if state == "CLOSED" else self.failures
