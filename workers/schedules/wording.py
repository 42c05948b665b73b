"""Schedules in words: when, and what; and by which trigger somebody ends one."""

from collections.abc import Mapping
from typing import Any

from interlock.workflows.errors import BadInput
from interlock.workflows.schedules.actions import Create, Fire, read_action


def in_words(context: Mapping[str, Any]) -> str:
    """When a schedule fires."""
    times = context.get("times", {})
    if "cron" in times:
        return f"{times['cron']} ({times.get('time_zone', 'UTC')})"
    return f"every {times.get('every_seconds')} s"


def what_it_does(row: Mapping[str, Any]) -> str:
    """What a schedule does, by its row in `schedules.listed`; or what is wrong with that."""
    try:
        action = read_action(row["context"].get("does"))
    except BadInput as error:
        return str(error)
    match action:
        case Fire():
            return f"fire {action.trigger} on {row['target_type']}/{row['target_name']}"
        case Create():
            return f"create {action.type}/{action.name}"
    return f"run the plan {action.plan.get('name')}"


def move_of(schedule: Mapping[str, Any], trigger: str, by: str) -> str:
    """The trigger that does what somebody asks of a schedule: to end somebody else's is for operators (`stop`)."""
    return "stop" if trigger == "end" and schedule["created_by"] != by else trigger
