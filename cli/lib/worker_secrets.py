"""A worker's secret on the command line: from the environment or a file, never as an argument, which `ps` shows."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import Annotated

import typer

from interlock.workers.engine.worker_secrets import checked
from interlock.workers.system import write_once
from interlock.workflows.errors import BadInput
from interlock.workflows.output.escaping import shown

VARIABLE = "INTERLOCK_WORKER_SECRET"
LIMIT = 1_024  # bytes that are read of a file
PRIVATE = 0o600

SecretFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help=f"A file of yours alone (mode 600) with the worker's secret. [{VARIABLE}]"),
]
NewSecretFile = Annotated[
    Path | None,
    typer.Option("--secret-file", metavar="FILE", help="Write the worker's secret to this new file, of mode 600."),
]


def given(path: Path | None) -> str:
    """The secret of a worker; empty: none is given.

    Args:
        path: the file that the command names, if it does.

    Raises:
        BadInput: the file cannot be read, or others can read it; or what is given cannot be a secret.
    """
    secret = os.environ.get(VARIABLE, "").strip() if path is None else _read(path)
    return checked(secret) if secret or path else ""


def required(path: Path | None) -> str:
    """The secret of a worker. Raises `BadInput` as `given`, and if none is given."""
    if secret := given(path):
        return secret
    raise BadInput(
        f"what proves that you are this worker? Set {VARIABLE} to the secret that `interlock worker register` printed, "
        "or name its file (--secret-file). If it is lost: `interlock worker shutdown --help`, then register again"
    )


@contextmanager
def kept(path: Path | None) -> Iterator[Callable[[str], None]]:
    """A function that keeps a new secret in a file that is there from the beginning; it stays only if that was called.

    Raises:
        BadInput: the file exists already, or cannot be written.
    """
    if path is None:
        yield lambda _: None
        return
    try:
        write_once.create(path, PRIVATE, b"")
    except OSError as error:
        raise BadInput(f"--secret-file {shown(str(path))}: it cannot be created: {error.strerror}") from error
    done = False

    def keep(secret: str) -> None:
        nonlocal done
        path.write_text(f"{secret}\n")
        done = True

    try:
        yield keep
    finally:
        if not done:
            path.unlink(missing_ok=True)


def _read(path: Path) -> str:
    name = f"--secret-file {shown(str(path))}"
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise BadInput(f"{name}: it must be a file of yours that nobody else may read or write: chmod 600")
            return file.read(LIMIT).decode(errors="replace").strip()
    except OSError as error:
        raise BadInput(f"{name}: it cannot be read: {error.strerror}") from error
