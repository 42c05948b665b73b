"""A schedule: it fires a trigger, creates an instance or submits a plan, again and again (docs/spec/schedule.md).

active ⇄ paused
active, paused → ended

Whoever created it pauses, resumes and ends it, and an operator can stop it. Its terms are its context, which never
changes.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from interlock.workflows.definition import Definition, Field, Guard, T
from interlock.workflows.errors import BadInput
from interlock.workflows.machines.orchestration.metadata_guards import reason_given
from interlock.workflows.schedules.actions import read_action
from interlock.workflows.schedules.times import read_catch_up, read_times

SAID = (reason_given,)
ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)

own_schedule = Guard(
    "own_schedule",
    lambda case: case.by == case.row.get("owner"),
    "only who created the schedule may do that (--by NAME), or an operator may end it (`interlock schedule delete`); "
    "it was created by",
    needs=frozenset({"row"}),
    missing=lambda case: [str(case.row.get("owner"))],
)


def _readable(read: Callable[[object], object]) -> Callable[[object], bool]:
    def holds(value: object) -> bool:
        try:
            read(value)
        except BadInput:
            return False
        return True

    return holds


SCHEDULE = Definition(
    type="schedule",
    version="1.0.0",
    summary="A trigger, an instance or a plan at certain times.",
    order=(("active", "paused"), ("ended",)),
    initial="active",
    terminal=frozenset({"ended"}),
    resting=frozenset({"active", "paused"}),
    transitions=(
        T("pause", "active", "paused", when=(own_schedule,)),
        T("resume", "paused", "active", when=(own_schedule,)),
        T("end", ("active", "paused"), "ended", when=(own_schedule,)),
        T("stop", ("active", "paused"), "ended", by="operator", when=SAID, severity="warning"),
        T("firing_failed", "active", "active", by="machinery", when=SAID, severity="warning"),
        T("lapse", ("active", "paused"), "ended", by="machinery", when=SAID, severity="warning"),
    ),
    fields=(
        Field(
            "times",
            _readable(lambda value: read_times(value, ANY_TIME)),
            '{"cron": "0 3 * * *", "time_zone": "Europe/Berlin"} or {"every_seconds": 900}',
            required=True,
        ),
        Field("does", _readable(read_action), "an object with one of fire, create and submit", required=True),
        Field("catch_up", _readable(read_catch_up), '{"policy": "skip"}, {"policy": "one"} or {"policy": "all"}'),
    ),
)
