"""Context fields of the orchestration's machines: the columns that are set at creation (CHECK-23)."""

import re
from collections.abc import Mapping
from math import isfinite
from uuid import UUID

from interlock.workflows.definition import Field, Link
from interlock.workflows.fields import name, names


def uuid(value: object) -> bool:
    """Whether the value is the text of a UUID, by which typed rows refer to others."""
    try:
        return isinstance(value, str) and bool(UUID(value))
    except ValueError:
        return False


def uuids(value: object) -> bool:
    """Whether the value is a list of texts of UUIDs."""
    return isinstance(value, list) and all(map(uuid, value))


def whole(value: object) -> bool:
    """Whether the value is an int and not a bool."""
    return type(value) is int


def at_least(least: int, value: object) -> bool:
    """Whether the value is a whole number of at least `least`."""
    return type(value) is int and value >= least


def number(value: object) -> bool:
    """Whether the value is a finite int or float, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def positive(value: object) -> bool:
    """Whether the value is a number above zero."""
    return isinstance(value, int | float) and number(value) and value > 0


def backoff(value: object) -> bool:
    """Whether the value is an object of some of `base`, `factor` and `cap` that `workflows.backoff.grown` can use."""
    if not isinstance(value, Mapping) or not all(map(number, value.values())):
        return False
    base, cap, factor = (float(value.get(key, 1.0)) for key in ("base", "cap", "factor"))
    return base >= 0 and cap >= 0 and 1 <= factor <= GREATEST_FACTOR


def exit_codes(value: object) -> bool:
    """Whether the value is a list of whole numbers, and not empty: without an expected code no command succeeds."""
    return isinstance(value, list) and bool(value) and all(map(whole, value))


def inputs(value: object) -> bool:
    """Whether the value is an object of variables, each with the task whose result it gets, and perhaps a key of it."""
    return isinstance(value, Mapping) and all(map(_input, value, value.values()))


def _input(name: object, value: object) -> bool:
    return (
        isinstance(name, str)
        and re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) is not None
        and isinstance(value, Mapping)
        and set(value) <= {"task", "key"}
        and uuid(value.get("task"))
        and isinstance(value.get("key", ""), str)
    )


def affinity(value: object) -> bool:
    """Whether the value is an object whose `workstreams` and `phases`, if given, are names (WORKER-3)."""
    return isinstance(value, Mapping) and all(names(value.get(each, [])) for each in ("workstreams", "phases"))


GREATEST_FACTOR = 10
NAME_SAYS = "a name"
RUN_ID = Field("run_id", uuid, "the UUID of its run", required=True)
WORKSTREAM_ID = Field("workstream_id", uuid, "the UUID of its workstream", required=True)
WORKSTREAM_BEFORE = Field("workstream_id", name, "the entity id or UUID of its workstream")
RETRY_OF = Field("retry_of", name, "the entity id or UUID of the one it is tried again for")
NAMED_BEFORE = Field("depends_on", names, "a list of entity ids or UUIDs: what it depends on, of its own type")
IS_CRITICAL = Field("is_critical", lambda value: isinstance(value, bool), "true or false")
TIMEOUT = Field("timeout_sec", positive, "a number of seconds above 0")
EXIT_CODES = Field("expected_exit_codes", exit_codes, "a list of whole numbers, at least one")
DEPENDS_ON = Field("depends_on", uuids, "a list of UUIDs: what it depends on, of its own type")
MAX_RETRIES = Field("max_retries", lambda value: at_least(0, value), "a whole number, at least 0")
TASK_COUNT = Field("task_count", lambda value: at_least(0, value), "how many tasks it is to have, a whole number")
CAPABILITIES_SAY = "a list of names"
REQUIRED_CAPABILITIES = Field("required_capabilities", names, CAPABILITIES_SAY)


def depends_on(type_: str) -> Link:
    """The link of an instance to those of its own type that it waits for."""
    return Link("depends_on", type=type_, context_key="depends_on", inverse="dependents")


def retry_of(type_: str) -> Link:
    """The link of an instance to the one of its own type that it is tried again for."""
    return Link("retry_of", type=type_, context_key="retry_of", inverse="retried_by")
