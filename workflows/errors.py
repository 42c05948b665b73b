"""Faults, as exceptions. What a machine merely refuses is not here: that is a value (`workflows.outcomes`).

Each class's docstring is what happened and what to do about it. `refused` errors are the caller's to mend (exit
code 2), the others are ours or the machine's (exit code 1).
"""

from pathlib import Path


class InterlockError(Exception):
    """The base of every error raised on purpose."""

    refused = False


class Refused(InterlockError):
    """What was asked for cannot be accepted as it stands; nothing was written. Correct it and ask again."""

    refused = True


class InvalidDefinition(InterlockError):
    """A workflow definition contradicts itself. Mend the file it names; nothing starts until then."""


class DefinitionChanged(InterlockError):
    """A recorded version now has other content. Give the changed definition a new version."""


class UnknownWorkflow(Refused):
    """No such workflow type or version is defined."""


class UnknownInstance(Refused):
    """No instance answers to that name."""


class Archived(UnknownInstance):
    """It has ended and is in the archive: it can be looked at, and never moves again. Make a new instance."""


class AmbiguousInstance(Refused):
    """Several instances answer to that name; say TYPE/ENTITY_ID or the UUID."""


class UnknownTrigger(Refused):
    """The definition has no trigger of that name, in any state."""


class AlreadyExists(Refused):
    """An instance of that type and entity exists in this project already."""


class RequestConflict(Refused):
    """The `request_id` was used before with another body. Use a new one, or send the same body."""


class IllegalTransition(Refused):
    """The machine does not allow that from where the instance stands. Look at what is legal, or make a new instance.

    Attributes:
        status_code: what an HTTP API answers (seed 002, section 1.4).
        state: where it stands.
        legal: the triggers that it answers to there.
    """

    status_code = 409

    def __init__(self, message: str, *, state: str, legal: tuple[str, ...] = ()) -> None:
        super().__init__(f"{message}; legal in {state!r}: {', '.join(legal) or 'nothing, it is finished'}")
        self.state, self.legal = state, legal


class BadInput(Refused):
    """A value could not be read; the message names where and what was expected."""


class OthersHome(InterlockError):
    """A data directory is somebody else's. Run as the user who said `interlock up`, or name another INTERLOCK_HOME."""

    def __init__(self, file: Path) -> None:
        super().__init__(f"{file} belongs to another user; run as the one who started it, or set INTERLOCK_HOME")


class NotRunning(InterlockError):
    """No servers are known. Start them with `interlock up`, or set DATABASE_URL and BROKER_URL."""

    def __init__(self, home: Path) -> None:
        super().__init__(
            f"nothing is running in {home}. Start it with `interlock up --detach`, or set DATABASE_URL and "
            "BROKER_URL to use your own servers."
        )


class AlreadyRunning(Refused):
    """Another `interlock up` holds this data directory. Use it, stop it, or choose another INTERLOCK_HOME."""


class ServerFault(InterlockError):
    """A part did not start or went away; the message names its log."""


class StaleLease(InterlockError):
    """The effect's lease passed to another worker; this one's report is not taken."""
