"""Secrets by reference: a plan names the place of a value, and the worker reads it right before the command starts.

The value is in no row, log, event or argument: only in the environment of the command, and masked in its output.
"""

import os
import stat
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from interlock.workers.execution.output import LEAST_CHARACTERS
from interlock.workers.settings import Settings
from interlock.workers.system.helpers import helper
from interlock.workflows.errors import InterlockError

LARGEST_BYTES = 65_536
PROGRAM_SECONDS = 10.0
OTHERS = stat.S_IRWXG | stat.S_IRWXO


class SecretNotHad(InterlockError):
    """A secret that `env_from` names is not available here, so the command was not started.

    The message says why. Allow it in the worker's settings (INTERLOCK_SECRETS_…), or repair what it names.
    """


def resolve(settings: Settings, references: Mapping[str, str]) -> dict[str, str]:
    """The values of a task's or gate's `env_from`.

    Args:
        settings: this worker's: which secrets may be named at all.
        references: variable -> `env:VARIABLE`, `file:PATH` or `command:NAME`.

    Returns:
        Variable -> value, without a newline at its end.

    Raises:
        SecretNotHad: a secret is not allowed, missing, open to others, too short or too long. The message contains no
            value.
    """
    return {variable: _value(settings, variable, reference) for variable, reference in references.items()}


def _value(settings: Settings, variable: str, reference: str) -> str:
    kind, _, name = reference.partition(":")
    try:
        raw = {"env": _of_environment, "file": _of_file, "command": _of_program}[kind](settings, name)
    except KeyError:
        raise SecretNotHad(f"{variable}: {reference!r} is neither env:NAME, file:PATH nor command:NAME") from None
    except (OSError, ValueError) as fault:
        raise SecretNotHad(f"{variable}: {reference}: {fault}") from fault
    value = raw.removesuffix(b"\n").removesuffix(b"\r")
    if b"\0" in value or not LEAST_CHARACTERS <= len(value) <= LARGEST_BYTES:
        raise SecretNotHad(
            f"{variable}: {reference}: a secret must have {LEAST_CHARACTERS} to {LARGEST_BYTES:,} bytes and no NUL"
        )
    return os.fsdecode(value)


def _of_environment(settings: Settings, name: str) -> bytes:
    if name not in settings.secrets_env:
        raise ValueError("not among INTERLOCK_SECRETS_ENV")
    if name not in os.environ:
        raise ValueError("not set in this worker's environment")
    return os.environb[os.fsencode(name)]


def _of_file(settings: Settings, name: str) -> bytes:
    if settings.secrets is None:
        raise ValueError("INTERLOCK_SECRETS, the directory of such files, is not set")
    inside = Path(name).relative_to(settings.secrets) if Path(name).is_absolute() else Path(name)
    if not inside.parts or ".." in inside.parts:
        raise ValueError(f"not below {settings.secrets}")
    with ExitStack() as opened:
        place = _opened(opened, settings.secrets, os.O_DIRECTORY, None)
        for part in inside.parts[:-1]:  # one by one, so that none of them may be a symbolic link
            place = _opened(opened, part, os.O_DIRECTORY | os.O_NOFOLLOW, place)
        file = _opened(opened, inside.parts[-1], os.O_NOFOLLOW | os.O_NONBLOCK, place)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise ValueError("not a regular file, or it has several hard links")
        if found.st_uid not in (os.geteuid(), 0) or found.st_mode & OTHERS:
            raise ValueError("other users can read it: it must belong to this user or root, with mode 0600")
        return os.read(file, LARGEST_BYTES + 3)


def _opened(opened: ExitStack, name: str | Path, flags: int, place: int | None) -> int:
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=place)
    opened.callback(os.close, descriptor)
    status = os.fstat(descriptor)
    if flags & os.O_DIRECTORY and (
        status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        raise ValueError(f"other users can write {name}")
    return descriptor


def _of_program(settings: Settings, name: str) -> bytes:
    program = settings.programs_of_secrets.get(name)
    if program is None:
        raise ValueError("not among INTERLOCK_SECRETS_COMMANDS")
    silent = f"no answer in {PROGRAM_SECONDS:g} s"
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with helper([program], silent, **streams) as process:
        output, _ = process.communicate(timeout=PROGRAM_SECONDS)
    if process.returncode != 0:
        raise ValueError(f"ended with exit code {process.returncode}")
    return output
