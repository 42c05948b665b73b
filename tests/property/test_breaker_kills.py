"""A breaker whose callers die: never two trials at a time, and after cooldown and heartbeats the tool is tried again.

What a kill is to PostgreSQL: a caller that says nothing any more, and whose heartbeats stop.
"""

from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from uuid_utils.compat import uuid7

from interlock.workers.circuit_breakers import BreakerOpen, Call, _admit, _report, calling_for_claim, known
from interlock.workers.client.client import Client
from interlock.workers.pool import claims, registration
from interlock.workers.pool.claims import Claim, StaleClaim
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from tests import rights
from tests.callers import TOOL, let_the_cooldown_pass
from tests.crewing import Site, hand, silence
from tests.driving import drain_all, swept
from tests.property.breaker_model import Caller, Model
from tests.property.stateful import run_stateful

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
STEPS = 20
ENDS = {
    True: Report("execution_failed", {"exit_code": 1, "error": "as drawn"}),
    False: Report("execution_completed", {"exit_code": 0}),
}


class Kills(RuleBasedStateMachine):
    """Workers and others call one tool, and die; the breaker and the model let the same calls through."""

    def __init__(self, runtime: Runtime, dba: Dba) -> None:
        super().__init__()
        self.runtime, self.dba, self.project = runtime, dba, str(uuid7())
        self.client = Client(runtime)
        self.callers: list[Caller] = []

    @initialize(threshold=st.integers(1, 2))
    def begin(self, threshold: int) -> None:
        self.model = Model(threshold)
        context = {"tool_id": TOOL, "failure_threshold": threshold}
        self.client.create("circuit_breaker", TOOL, project=self.project, context=context)
        # Each step takes one at most, and so do the two claims of `teardown`.
        first, *_ = Site(self.client, self.project).queue(STEPS + 2, tool=TOOL, max_retries=100)
        self.here = {"workstreams": [self.client.show(first)["context"]["workstream_id"]]}

    @rule()
    def claim(self) -> None:
        worker = hand(self.runtime, f"hand-{uuid7()}", affinity=self.here)
        claim = claims.take(self.runtime, rights.known(worker))
        drain_all(self.runtime)
        assert (claim is not None) == self.model.lets_through
        if claim:
            self._admitted(claim)
        else:
            registration.leave(self.runtime, rights.known(worker))
            drain_all(self.runtime)

    @rule()
    def call(self) -> None:
        try:
            call = _admit(self.runtime, self.project, TOOL, 3_600.0)
        except BreakerOpen:
            assert not self.model.lets_through
        else:
            assert self.model.lets_through
            self._admitted(call)

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), fails=st.booleans())
    def end(self, data: st.DataObject, fails: bool) -> None:
        self._end(data.draw(st.sampled_from(self._alive())), fails)

    @precondition(lambda self: self._alive())
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """Nothing is noticed yet."""
        data.draw(st.sampled_from(self._alive())).dead = True

    @precondition(lambda self: any(isinstance(each.how, Claim) for each in self._alive()))
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Its task is cancelled; it stops the command, and tells nothing of the tool."""
        caller = data.draw(st.sampled_from([each for each in self._alive() if isinstance(each.how, Claim)]))
        self.callers.remove(caller)
        self.client.fire(caller.how.task_id, "user_cancelled", by="ann")
        drain_all(self.runtime)
        self.model.give_back(caller)
        with pytest.raises(StaleClaim):
            claims.finish(self.runtime, rights.known(caller.how.worker_id), caller.how.token, ENDS[True])

    @rule()
    def miss_two_heartbeats(self) -> None:
        """The dead are noticed, and their tasks are taken from them."""
        for caller in [each for each in self.callers if each.dead and isinstance(each.how, Claim)]:
            silence(self.dba, caller.how.worker_id, 121)
            self.callers.remove(caller)
            self.model.give_back(caller)
        self._sweep("heartbeats")

    @rule()
    def outlast_leases(self) -> None:
        self.dba.execute(
            "UPDATE circuit_breakers SET trial_until = now() - interval '1 second' WHERE trial_until > now()"
        )
        if self.model.last and isinstance(self.model.last.how, Call):
            self.model.held = False
        self.callers = [each for each in self.callers if not (each.dead and isinstance(each.how, Call))]

    @rule()
    def cool_down(self) -> None:
        let_the_cooldown_pass(self.runtime.settings)
        self._sweep("dispatch")
        self.model.cool_down()

    @invariant()
    def both_stand_alike(self) -> None:
        found = known(self.runtime, self.project, TOOL)
        assert found.state == self.model.state
        (away,) = (
            self.dba.execute(
                "SELECT turned_away_until(b) IS NOT NULL FROM circuit_breakers b WHERE breaker_id = %s",
                (found.breaker_id,),
            ).fetchone()
            or ()
        )
        assert away != self.model.lets_through

    def teardown(self) -> None:
        """The tool fails, and who tries it next dies, as does everybody else; then it is tried again, and works."""
        while self.model.state == "CLOSED":
            self.call()
            self._end(self.callers[-1], fails=True)
        self.cool_down()
        self.claim()
        for caller in self.callers:
            caller.dead = True
        self.outlast_leases()
        self.miss_two_heartbeats()
        self.claim()
        self._end(self.callers[-1], fails=False)
        assert known(self.runtime, self.project, TOOL).state == "CLOSED"

    def _end(self, caller: Caller, fails: bool) -> None:
        self.callers.remove(caller)
        if isinstance(caller.how, Call):
            caller.how.error = "as drawn" if fails else None
            _report(self.runtime, caller.how, "somebody")
            self.model.report(caller, fails=fails, period=caller.period)
            return
        with calling_for_claim(self.runtime, self.project, TOOL, by="crew", claim_id=caller.how.id) as call:
            if fails:
                call.failed("as drawn")
        self.model.report(caller, fails=fails, period=self.model.period)
        claims.finish(self.runtime, rights.known(caller.how.worker_id), caller.how.token, ENDS[fails])
        drain_all(self.runtime)

    def _admitted(self, how: Claim | Call) -> None:
        caller = Caller(how, self.model.period)
        self.callers.append(caller)
        self.model.admit(caller)

    def _alive(self) -> list[Caller]:
        return [each for each in self.callers if not each.dead]

    def _sweep(self, name: str) -> None:
        self.dba.execute("DELETE FROM sweeps")  # each time is a new period
        swept(self.runtime, name)
        drain_all(self.runtime)


def test_whoever_dies_there_is_one_trial_at_a_time_and_the_tool_is_tried_again(runtime: Runtime, dba: Dba) -> None:
    run_stateful(lambda: Kills(runtime, dba), examples=5, steps=STEPS)
