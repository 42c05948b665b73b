"""Faults, as exceptions. A trigger that a machine rejects is not a fault, but a value (`workflows.outcomes`).

Each class's docstring says what happened and what to do about it. The caller can correct a `refused` error (exit code
2); any other is a fault of Interlock or its environment (exit code 1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from interlock.workflows.faults import Fault


class InterlockError(Exception):
    """The base of every error raised on purpose."""

    refused = False


class Refused(InterlockError):
    """The request cannot be accepted; nothing was written. Correct it and try again."""

    refused = True


class InvalidDefinition(InterlockError):
    """A workflow definition contradicts itself. Correct the one that the message names; nothing starts until then.

    Attributes:
        faults: each fault, with its file and line.
    """

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults) or (Fault(message),)


class DefinitionChanged(InterlockError):
    """A recorded version's content has changed. Give the changed definition a new version."""


class UnknownWorkflow(Refused):
    """No such workflow type or version is defined."""


class UnknownInstance(Refused):
    """No instance has that name."""


class Archived(UnknownInstance):
    """The instance is archived: it can be read but never moves again. Create a new instance."""


class AmbiguousInstance(Refused):
    """Several instances have that name; use TYPE/ENTITY_ID or the UUID."""


class UnknownTrigger(Refused):
    """The definition has no trigger of that name, in any state."""


Function = Literal["accept_all", "create_all", "as_itself", "operate"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What was refused: a function of PostgreSQL and the rows it was given, which may hold a secret proof.

    `operate` is what only operators may do; its row says who tried what on which instance, in which project.
    """

    function: Function
    rows: Sequence[Mapping[str, Any]] = field(repr=False)


class NotYours(Refused):
    """The trigger is not the caller's to fire, and was not accepted. The message says who may, and by what proof.

    Attributes:
        attempt: what to record of it (REFUSAL-1); None: nothing, or it is recorded already.
    """

    def __init__(self, message: str, attempt: Attempt | None = None) -> None:
        super().__init__(message)
        self.attempt = attempt


class AlreadyExists(Refused):
    """The project already has an instance of that type and entity id."""


class RequestConflict(Refused):
    """The `request_id` was used before with a different body. Use a new one, or send the same body."""


class IllegalTransition(Refused):
    """The machine does not allow that in the instance's state. Use a legal trigger, or create a new instance.

    Attributes:
        status_code: the status an HTTP API returns (SUPERVISED-1).
        state: the instance's state.
        legal: the triggers that are legal in it.
    """

    status_code = 409

    def __init__(self, message: str, *, state: str, legal: tuple[str, ...] = ()) -> None:
        super().__init__(f"{message}; legal in {state!r}: {', '.join(legal) or 'nothing: it has ended'}")
        self.state, self.legal = state, legal


class BadInput(Refused):
    """A value is not valid; the message says where, and what was expected."""


class WrongData(BadInput):
    """A trigger's data does not fit the model that its definition names for it; the message names each field."""


class OthersHome(InterlockError):
    """Another user owns the data directory. Run as the user who ran `interlock up`, or set another INTERLOCK_HOME."""

    def __init__(self, file: Path) -> None:
        super().__init__(
            f"{file} belongs to another user; run as that user, or set INTERLOCK_HOME to a directory of yours"
        )


class NotRunning(InterlockError):
    """No servers are configured. Start them with `interlock up`, or set DATABASE_URL and BROKER_URL."""

    def __init__(self, home: Path) -> None:
        super().__init__(
            f"nothing is running in {home}. Start it with `interlock up --detach`; if it runs in another folder, "
            "set INTERLOCK_HOME to its `.interlock`; for your own servers, set DATABASE_URL and BROKER_URL."
        )


class AlreadyRunning(Refused):
    """Another `interlock up` uses this data directory. Use it, stop it, or choose another INTERLOCK_HOME."""


class ServerFault(InterlockError):
    """A part did not start or has ended; the message names its log."""


class StaleLease(InterlockError):
    """The effect's lease was lost; the worker's report is not accepted."""
