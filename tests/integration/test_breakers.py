"""A circuit breaker's promises: it opens once, lets one trial through, and forgets nothing when its caller dies."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.orchestration import breakers
from interlock.db.orchestration.breakers import Breaker
from interlock.workers.circuit_breakers import BreakerOpen, _request, calling, configure, configured, known
from interlock.workers.client.client import Client
from interlock.workers.overrides.circuit_breakers import reset
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.errors import BadInput, UnknownInstance
from tests.callers import TOOL, crowd, fail_often, hold_the_trial, kill, let_the_cooldown_pass, try_at_once
from tests.driving import drain_all, swept
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
MANY = 8
WHY = {"by": "ann", "reason": "the suite is flaky"}
NO_BROKER = "redis://127.0.0.1:1/0"


class ToolFault(Exception):
    """What the tool of these tests raises."""


def call(runtime: Runtime, project: str, *, fails: bool = False) -> None:
    with calling(runtime, project, TOOL):
        if fails:
            raise ToolFault("on purpose")


def fail(runtime: Runtime, project: str, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(ToolFault):
            call(runtime, project, fails=True)


def refuses(runtime: Runtime, project: str) -> BreakerOpen:
    with pytest.raises(BreakerOpen) as refusal, calling(runtime, project, TOOL):
        pytest.fail("the call was let through")
    return refusal.value


@pytest.fixture
def opened(runtime: Runtime, project: str) -> Breaker:
    fail(runtime, project, 5)
    return known(runtime, project, TOOL)


@pytest.fixture
def half_open(runtime: Runtime, settings: Settings, project: str, opened: Breaker) -> Breaker:
    """Cooled down, and nobody has asked yet."""
    let_the_cooldown_pass(settings)
    with transaction(runtime.database) as connection:
        requests.wake(connection, limit=10)
    drain_all(runtime)
    return known(runtime, project, TOOL)


def trail(runtime: Runtime, breaker: Breaker) -> list[str]:
    return [event["trigger"] for event in Client(runtime).history(breaker.breaker_id)]


def test_a_tool_never_configured_gets_a_breaker_with_the_settings_thresholds(
    make_runtime: Callable[..., Runtime], project: str
) -> None:
    runtime = make_runtime(breaker_failure_threshold=2, breaker_cooldown_seconds=7.5, breaker_success_threshold=3)
    with pytest.raises(UnknownInstance, match="the tool has not been called there yet"):
        known(runtime, project, TOOL)
    call(runtime, project)
    made = known(runtime, project, TOOL)
    assert (made.state, made.failure_threshold, made.cooldown_seconds, made.success_threshold) == ("CLOSED", 2, 7.5, 3)


def test_a_tools_own_configuration_holds(runtime: Runtime, project: str) -> None:
    context = {"tool_id": TOOL, "failure_threshold": 1, "cooldown_seconds": 3600}
    Client(runtime).create("circuit_breaker", TOOL, project=project, context=context)
    fail(runtime, project)
    assert 3590 < refuses(runtime, project).seconds <= 3600


def test_another_configuration_holds_at_once_also_where_it_is_open(
    runtime: Runtime, settings: Settings, project: str, opened: Breaker
) -> None:
    changed = configure(runtime, project, TOOL, **WHY, cooldown_seconds=3600)
    assert (changed.failure_threshold, changed.success_threshold) == (5, 1)
    assert 3590 < refuses(runtime, project).seconds <= 3600
    swept(runtime, "dispatch")
    assert known(runtime, project, TOOL).state == "OPEN"
    configure(runtime, project, TOOL, **WHY, cooldown_seconds=0.001, failure_threshold=2)
    call(runtime, project)  # the trial
    assert known(runtime, project, TOOL).state == "CLOSED"
    fail(runtime, project, 2)
    configure(runtime, project, TOOL, **WHY, cooldown_seconds=60)
    assert 50 < refuses(runtime, project).seconds <= 60


def test_a_breaker_that_opens_again_does_so_for_the_new_cooldown(
    runtime: Runtime, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    call(runtime, project)
    configure(runtime, project, TOOL, **WHY, cooldown_seconds=3600)
    fail(runtime, project, 5)
    (left,) = (
        dba.execute(
            "SELECT extract(epoch FROM not_before - now()) FROM trigger_requests WHERE trigger = 'cooldown_expires'"
        ).fetchone()
        or ()
    )
    assert 3590 < left <= 3600


def test_a_lower_threshold_waits_for_the_next_failure(runtime: Runtime, project: str) -> None:
    fail(runtime, project, 4)
    configure(runtime, project, TOOL, **WHY, failure_threshold=2)
    assert known(runtime, project, TOOL).state == "CLOSED"
    fail(runtime, project)
    refuses(runtime, project)


def test_a_tool_nobody_called_cannot_be_configured(runtime: Runtime, project: str) -> None:
    with pytest.raises(UnknownInstance, match="the tool has not been called there yet"):
        configure(runtime, project, TOOL, **WHY, failure_threshold=2)


def test_each_change_of_a_configuration_is_kept_with_who_why_and_both_values(runtime: Runtime, project: str) -> None:
    call(runtime, project)
    made = configure(runtime, project, TOOL, **WHY, failure_threshold=9)
    assert configure(runtime, project, TOOL, by="bob", reason="again", failure_threshold=9) == made
    configure(runtime, project, TOOL, by="bob", reason="it recovers slowly", cooldown_seconds=90.0)
    first, second = configured(runtime, made.breaker_id)
    assert (first["configured_by"], first["reason"]) == (WHY["by"], WHY["reason"])
    assert (first["old_failure_threshold"], first["failure_threshold"]) == (5, 9)
    assert (second["configured_by"], second["old_cooldown_seconds"], second["cooldown_seconds"]) == ("bob", 60, 90)
    assert (second["old_failure_threshold"], second["failure_threshold"]) == (9, 9)
    assert configured(runtime, made.breaker_id, limit=1) == [second]


@pytest.mark.parametrize(
    "wrong", [{"reason": " "}, {"reason": ""}, {"by": ""}, {"by": " ann"}, {"failure_threshold": 0}], ids=str
)
def test_a_configuration_without_a_valid_name_reason_or_value_is_refused(
    runtime: Runtime, project: str, wrong: dict[str, Any]
) -> None:
    call(runtime, project)
    with pytest.raises(BadInput, match=next(iter(wrong))):
        configure(runtime, project, TOOL, **WHY | {"failure_threshold": 9} | wrong)
    assert known(runtime, project, TOOL).failure_threshold == 5


def test_no_configuration_changes_without_its_row_and_no_row_is_changed(
    runtime: Runtime, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    call(runtime, project)
    configure(runtime, project, TOOL, **WHY, failure_threshold=9)
    with pytest.raises(psycopg.errors.CheckViolation, match="without saying who and why"), dba.transaction():
        dba.execute("UPDATE circuit_breakers SET cooldown_seconds = 1")
    for change in ("UPDATE breaker_configurations SET reason = 'x'", "DELETE FROM breaker_configurations"):
        with pytest.raises(psycopg.errors.RestrictViolation):
            dba.execute(change)
    assert known(runtime, project, TOOL).cooldown_seconds == 60


def test_a_call_that_is_void_counts_neither_way(
    runtime: Runtime, settings: Settings, project: str, half_open: Breaker
) -> None:
    with calling(runtime, project, TOOL) as trial:
        trial.void()
    assert known(runtime, project, TOOL).state == "HALF_OPEN"
    call(runtime, project)  # the trial was given back
    fail(runtime, project, 2)
    with calling(runtime, project, TOOL) as again:
        again.void()
    assert known(runtime, project, TOOL).failure_count == 2


def test_projects_and_tools_do_not_share_a_breaker(runtime: Runtime, project: str, opened: Breaker) -> None:
    refuses(runtime, project)
    call(runtime, "another")
    with calling(runtime, project, "ruff"):
        pass


def test_it_opens_at_the_threshold_and_refuses_at_once_with_the_tool_and_the_seconds(
    runtime: Runtime, project: str
) -> None:
    fail(runtime, project, 4)
    call(runtime, project)  # a success between them: the count begins anew
    fail(runtime, project, 4)
    assert known(runtime, project, TOOL).state == "CLOSED"
    fail(runtime, project)
    refusal = refuses(runtime, project)
    assert refusal.tool_id == TOOL
    assert 50 < refusal.seconds <= 60
    (event,) = Client(runtime).history(known(runtime, project, TOOL).breaker_id)
    assert event["severity"] == "error"
    assert event["metadata"]["failure_count"] == 5
    assert event["metadata"]["error"] == "ToolFault: on purpose"


def test_a_failure_told_without_an_exception_counts(runtime: Runtime, project: str) -> None:
    for _ in range(5):
        with calling(runtime, project, TOOL) as one:
            one.failed("exit code 137")
    refuses(runtime, project)


def test_a_call_of_a_closed_breaker_writes_nothing(
    runtime: Runtime, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    call(runtime, project)
    before = dba.execute("SELECT ctid, xmin, b.* FROM circuit_breakers b").fetchall()

    def takes_no_number() -> bool:
        assigned = dba.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())").fetchone()
        for _ in range(10):
            call(runtime, project)
        return bool(dba.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())").fetchone() == assigned)

    assert any(takes_no_number() for _ in range(10))  # autovacuum takes one now and then
    assert dba.execute("SELECT ctid, xmin, b.* FROM circuit_breakers b").fetchall() == before


def test_it_works_while_the_broker_is_away(make_runtime: Callable[..., Runtime], project: str) -> None:
    runtime = make_runtime(broker_url=NO_BROKER)
    fail(runtime, project, 5)
    refuses(runtime, project)


@pytest.mark.parametrize("calls", [1, 3])
def test_however_many_processes_fail_at_once_it_opens_once_at_exactly_the_threshold(
    settings: Settings, runtime: Runtime, project: str, calls: int
) -> None:
    with crowd(settings, project, MANY, fail_often, calls) as told:
        passed = sum(told.hear(MANY))
    breaker = known(runtime, project, TOOL)
    (event,) = Client(runtime).history(breaker.breaker_id)
    assert event["metadata"]["failure_count"] == breaker.failure_count == 5
    assert breaker.state == "OPEN"
    assert 5 <= passed <= 5 + MANY - 1  # those that were under way when it opened


def test_of_eight_processes_one_gets_the_trial_every_time(
    settings: Settings, runtime: Runtime, project: str, opened: Breaker
) -> None:
    rounds = 20
    with crowd(settings, project, MANY, try_at_once, rounds) as told:
        said = told.hear(MANY * rounds)
    for round_ in range(rounds):
        assert said.count((round_, "passed")) == 1
        assert said.count((round_, "refused")) == MANY - 1
    assert trail(runtime, opened) == ["failure_threshold_exceeded", *["cooldown_expires", "failure"] * rounds]


def test_the_trial_of_a_killed_caller_goes_to_another_after_its_lease(
    settings: Settings, runtime: Runtime, project: str, half_open: Breaker
) -> None:
    with crowd(settings, project, 1, hold_the_trial, 1.0) as told:
        (holder,) = told.hear(1)
        kill(holder)
        assert 0 < refuses(runtime, project).seconds <= 1.0  # it may only be slow
        eventually(lambda: call(runtime, project) or True)
    assert trail(runtime, half_open)[-1] == "success"


def test_who_lost_the_trial_cannot_tell_its_outcome(runtime: Runtime, project: str, half_open: Breaker) -> None:
    with calling(runtime, project, TOOL, lease_seconds=0.001) as slow:
        eventually(lambda: call(runtime, project) or True)
        slow.failed("too late")
    assert known(runtime, project, TOOL).state == "CLOSED"
    assert known(runtime, project, TOOL).failure_count == 0


def test_an_interrupted_trial_is_given_back(runtime: Runtime, project: str, half_open: Breaker) -> None:
    with pytest.raises(KeyboardInterrupt), calling(runtime, project, TOOL):
        raise KeyboardInterrupt
    call(runtime, project)
    assert known(runtime, project, TOOL).state == "CLOSED"


def test_it_closes_after_as_many_trials_as_its_tool_asks(runtime: Runtime, project: str, settings: Settings) -> None:
    context = {"tool_id": TOOL, "failure_threshold": 1, "success_threshold": 3}
    Client(runtime).create("circuit_breaker", TOOL, project=project, context=context)
    fail(runtime, project)
    let_the_cooldown_pass(settings)
    call(runtime, project)
    call(runtime, project)
    assert known(runtime, project, TOOL).state == "HALF_OPEN"
    fail(runtime, project)  # and all begins anew
    let_the_cooldown_pass(settings)
    for _ in range(2):
        call(runtime, project)
    assert known(runtime, project, TOOL).state == "HALF_OPEN"
    call(runtime, project)
    assert known(runtime, project, TOOL).state == "CLOSED"


def test_who_calls_after_the_cooldown_need_not_wait_for_the_sweep(
    runtime: Runtime, settings: Settings, project: str, opened: Breaker
) -> None:
    let_the_cooldown_pass(settings)
    call(runtime, project)
    assert trail(runtime, opened) == ["failure_threshold_exceeded", "cooldown_expires", "success"]


def test_the_sweep_ends_a_cooldown_that_nobody_asks_about(
    make_runtime: Callable[..., Runtime], project: str, dba: "psycopg.Connection[Any]"
) -> None:
    runtime = make_runtime(breaker_cooldown_seconds=0.3)
    fail(runtime, project, 5)
    refuses(runtime, project)

    def half_open() -> bool:
        dba.execute("DELETE FROM sweeps")  # each time is a new period
        swept(runtime, "dispatch")
        drain_all(runtime)
        return known(runtime, project, TOOL).state == "HALF_OPEN"

    eventually(half_open)


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_of_before_it_opened_counts_for_nothing_once_it_closed_again(
    runtime: Runtime, settings: Settings, project: str, fails: bool
) -> None:
    with calling(runtime, project, TOOL) as slow:
        fail(runtime, project, 5)
        let_the_cooldown_pass(settings)
        call(runtime, project)
        if fails:
            slow.failed("of old")
        else:
            fail(runtime, project)
    assert known(runtime, project, TOOL).failure_count == 0


def test_a_success_does_not_undo_an_opening_that_is_decided(runtime: Runtime, project: str) -> None:
    call(runtime, project)
    with calling(runtime, project, TOOL):
        decide_to_open(runtime, project)
    refuses(runtime, project)


def decide_to_open(runtime: Runtime, project: str) -> None:
    """What a caller does who dies after the commit of its count, before it applies the trigger."""
    breaker = known(runtime, project, TOOL)
    with transaction(runtime.database) as connection:
        counts = [breakers.failed(connection, breaker.breaker_id, breaker.version) for _ in range(7)]
        assert [count and count.reached for count in counts] == [False] * 4 + [True, None, None]
        requests.accept(connection, [_request(breaker, "failure_threshold_exceeded", "system", {})])


def test_an_opening_whose_caller_died_is_applied_by_the_next_one(runtime: Runtime, project: str) -> None:
    call(runtime, project)
    decide_to_open(runtime, project)
    refuses(runtime, project)
    assert known(runtime, project, TOOL).state == "OPEN"


@pytest.mark.parametrize(
    ("state", "moves"), [("CLOSED", []), ("OPEN", ["cooldown_expires", "success"]), ("HALF_OPEN", ["success"])]
)
def test_an_operator_closes_it_on_the_machines_own_way_and_history_tells_who_and_why(
    runtime: Runtime, settings: Settings, project: str, state: str, moves: list[str]
) -> None:
    fail(runtime, project, 3 if state == "CLOSED" else 5)
    if state == "HALF_OPEN":
        let_the_cooldown_pass(settings)
        with pytest.raises(KeyboardInterrupt), calling(runtime, project, TOOL):
            raise KeyboardInterrupt
    assert known(runtime, project, TOOL).state == state
    closed = reset(runtime, project, TOOL, OverrideOrder("ann", "mended"))
    assert (closed.state, closed.failure_count) == ("CLOSED", 0)
    by_hand = Client(runtime).history(closed.breaker_id)[-len(moves) :] if moves else []
    assert [event["trigger"] for event in by_hand] == moves
    assert all(event["metadata"]["operator"] == "ann" and event["metadata"]["reason"] == "mended" for event in by_hand)
    call(runtime, project)


def test_a_reset_of_a_tool_nobody_called_is_refused(runtime: Runtime, project: str) -> None:
    with pytest.raises(UnknownInstance):
        reset(runtime, project, "no-such-tool", OverrideOrder("ann", "mended"))


def test_a_breaker_opened_again_after_a_reset_keeps_its_whole_cooldown(
    runtime: Runtime, settings: Settings, project: str, opened: Breaker
) -> None:
    reset(runtime, project, TOOL, OverrideOrder("ann", "mended"))
    fail(runtime, project, 5)
    with transaction(runtime.database) as connection:  # the time of the first cooldown is over, not of the second
        connection.exec_driver_sql(
            "UPDATE interlock.trigger_requests SET not_before = now(), status = 'pending' WHERE request_id = %s",
            (f"{opened.breaker_id}:1:cooldown_expires",),
        )
    drain_all(runtime)
    refuses(runtime, project)
