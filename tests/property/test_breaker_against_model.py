"""A circuit breaker in PostgreSQL against a plain, single-threaded class, one step after another."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from uuid_utils.compat import uuid7

from interlock.workers.circuit_breakers import BreakerOpen, calling, known
from interlock.workers.client.client import Client
from interlock.workers.overrides.circuit_breakers import reset
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from tests.callers import TOOL, let_the_cooldown_pass
from tests.property.stateful import run_stateful

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]


class PlainBreaker:
    """What the specification says, in memory: counts, three states, a cooldown that somebody lets pass."""

    def __init__(self, failures: int, successes: int) -> None:
        self.state, self.cold = "CLOSED", False
        self.failures, self.successes = 0, 0
        self.failure_threshold, self.success_threshold = failures, successes

    def call(self, fails: bool) -> bool:
        """Whether the call is let through; then it ends as told."""
        if self.state == "OPEN":
            if not self.cold:
                return False
            self.state, self.successes = "HALF_OPEN", 0
        if fails:
            self._fail()
        else:
            self._succeed()
        return True

    def _succeed(self) -> None:
        if self.state == "CLOSED":
            self.failures = 0
            return
        self.successes += 1
        if self.successes == self.success_threshold:
            self.close()

    def _fail(self) -> None:
        self.failures += 1
        if self.state == "HALF_OPEN" or self.failures == self.failure_threshold:
            self.state, self.cold = "OPEN", False

    def close(self) -> None:
        self.state, self.failures = "CLOSED", 0


class BreakerAndModel(RuleBasedStateMachine):
    """Every call is made of both; both let it through or both refuse it."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.runtime = runtime
        self.project = str(uuid7())

    @initialize(failures=st.integers(1, 4), successes=st.integers(1, 3))
    def configure(self, failures: int, successes: int) -> None:
        self.model = PlainBreaker(failures, successes)
        context: dict[str, Any] = {"tool_id": TOOL, "failure_threshold": failures, "success_threshold": successes}
        Client(self.runtime).create("circuit_breaker", TOOL, project=self.project, context=context)

    @rule(ends=st.lists(st.booleans(), min_size=1, max_size=5))
    def call(self, ends: list[bool]) -> None:
        for fails in ends:
            try:
                with calling(self.runtime, self.project, TOOL) as one:
                    if fails:
                        one.failed("as drawn")
                passed = True
            except BreakerOpen:
                passed = False
            assert passed == self.model.call(fails)

    @rule()
    def cool_down(self) -> None:
        let_the_cooldown_pass(self.runtime.settings)
        self.model.cold = True

    @rule()
    def close_by_hand(self) -> None:
        reset(self.runtime, self.project, TOOL, OverrideOrder("ann", "as drawn"))
        self.model.close()

    @rule()
    def be_interrupted(self) -> None:
        """Nothing is learnt of the tool; only a cooldown that is over shows."""
        with pytest.raises((KeyboardInterrupt, BreakerOpen)), calling(self.runtime, self.project, TOOL):
            raise KeyboardInterrupt
        if self.model.state == "OPEN" and self.model.cold:
            self.model.state, self.model.successes = "HALF_OPEN", 0

    @invariant()
    def both_stand_alike(self) -> None:
        found = known(self.runtime, self.project, TOOL)
        assert found.state == self.model.state
        if found.state == "CLOSED":
            assert found.failure_count == self.model.failures
        if found.state == "HALF_OPEN":
            assert found.success_count == self.model.successes


def test_any_sequence_of_calls_goes_as_the_plain_class_says(make_runtime: Callable[..., Runtime]) -> None:
    runtime = make_runtime()
    run_stateful(lambda: BreakerAndModel(runtime), examples=17, steps=20)
