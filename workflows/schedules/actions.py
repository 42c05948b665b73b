"""What a schedule does each time: fires a trigger, creates an instance, or submits a plan (docs/spec/schedule.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from interlock.workflows.errors import BadInput
from interlock.workflows.input import names
from interlock.workflows.input.limits import PRIORITIES

DUE = "%due"  # in a name: the time
STAMP = "%Y%m%dT%H%M%SZ"
STAMP_LENGTH = len("20261121T150000Z")


@dataclass(frozen=True, slots=True)
class Fire:
    """Fire `trigger` on an instance, with this data."""

    instance: UUID
    trigger: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Create:
    """Create an instance of `type`, named as `name` says, with this context."""

    type: str
    name: str
    context: Mapping[str, Any]

    def named(self, due: datetime) -> str:
        """The name of the instance for one time."""
        return self.name.replace(DUE, stamp(due))


@dataclass(frozen=True, slots=True)
class Submit:
    """Run a plan, whose relative paths are those of `directory`."""

    plan: Mapping[str, Any]
    directory: str
    priority: int


Action = Fire | Create | Submit


def stamp(due: datetime) -> str:
    """A time in names and request ids: `20261121T150000Z`."""
    return due.astimezone(UTC).strftime(STAMP)


def read_stamp(text: str) -> datetime:
    """The time that `stamp` wrote. Raises `ValueError` if it did not."""
    return datetime.strptime(text, STAMP).replace(tzinfo=UTC)


def read_action(value: object) -> Action:
    """What a schedule's `does` describes.

    Args:
        value: `{"fire": …}`, `{"create": …}` or `{"submit": …}`.

    Raises:
        BadInput: it describes nothing; the message says why.
    """
    if not isinstance(value, Mapping) or len(value) != 1 or not isinstance(said := next(iter(value.values())), Mapping):
        raise BadInput("does must be an object with one of fire, create and submit")
    match next(iter(value)):
        case "fire":
            return _fire(**_said(said, "instance", "trigger", data={}))
        case "create":
            return _create(**_said(said, "type", "name", context={}))
        case "submit":
            return _submit(**_said(said, "plan", "directory", priority=0))
        case other:
            raise BadInput(f"does must be an object with one of fire, create and submit; got {other!r}")


def _said(said: Mapping[str, Any], *required: str, **usual: Any) -> dict[str, Any]:
    if missing := [each for each in required if each not in said]:
        raise BadInput(f"{missing[0]} is missing")
    if unknown := [each for each in said if each not in (*required, *usual)]:
        raise BadInput(f"unknown field {unknown[0]!r}; known: {', '.join((*required, *usual))}")
    return usual | dict(said)


def _fire(instance: object, trigger: object, data: object) -> Fire:
    if not isinstance(instance, str) or not names.UUID_TEXT.fullmatch(instance) or instance != instance.lower():
        raise BadInput("instance must be the UUID of an instance, in lower case")
    if not isinstance(data, Mapping):
        raise BadInput("data must be an object")
    return Fire(UUID(instance), names.name("trigger", trigger), data)


def _create(type: object, name: object, context: object) -> Create:
    if not isinstance(context, Mapping):
        raise BadInput("context must be an object")
    found = names.name("name", name)
    if DUE not in found:
        raise BadInput(f"name must contain {DUE}, which becomes the time: names are used once. As in 'report-{DUE}'")
    names.entity_id(found.replace(DUE, "0" * STAMP_LENGTH))
    if names.name("type", type).partition("@")[0] == "schedule":
        raise BadInput("a schedule cannot create a schedule")
    return Create(str(type), found, context)


def _submit(plan: object, directory: object, priority: object) -> Submit:
    if not isinstance(plan, Mapping):
        raise BadInput("plan must be an object")
    if not isinstance(directory, str) or not directory.startswith("/"):
        raise BadInput("directory must be an absolute path")
    if type(priority) is not int or priority not in PRIORITIES:
        raise BadInput(f"priority must be from {PRIORITIES[0]:,} to {PRIORITIES[-1]:,}")
    return Submit(plan, directory, priority)
