"""The directory through which a task's command gets its inputs and gives its result: one for each attempt.

The command may change everything in it, so nothing there is trusted: the result is read from a plain file of the
command's own user, up to its limit, by a descriptor of the directory that was opened before the command began.
"""

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.workers.effects.workspace import Workplace, worktrees, worktrees_path
from interlock.workers.execution.output import Masking
from interlock.workers.settings import Settings
from interlock.workers.system.safe_remove import remove
from interlock.workers.system.safe_walk import DIRECTORY, plain_file
from interlock.workers.system.users import Account, commands_account
from interlock.workflows.errors import BadInput
from interlock.workflows.input import limits

BELOW = ".exchange"  # beside the worktrees, where the commands' user gets; no run has such a name
RESULT, INPUTS = "output.json", "inputs.json"
OUTPUT_VARIABLE, INPUTS_VARIABLE = "INTERLOCK_OUTPUT", "INTERLOCK_INPUTS"
ABANDONED_SECONDS = 31 * 86_400.0  # longer than any command may run


@dataclass(frozen=True, slots=True)
class Exchange:
    """The directory of one attempt.

    Attributes:
        directory: its path.
        handle: its descriptor.
        owner: the user id of its files.
        variables: by which the command finds them.
    """

    directory: Path
    handle: int
    owner: int
    variables: Mapping[str, str]

    def result(self, secrets: tuple[str, ...] = ()) -> dict[str, Any]:
        """What the command gave as its result, as event metadata: `{"result": …}`, or nothing.

        Args:
            secrets: values that are masked.

        Raises:
            BadInput: it cannot be used: it is no JSON, too large, or not a file.
        """
        masking = Masking(secrets)
        text = masking.take(self._read()) + masking.rest()
        if not text.strip():
            return {}
        try:
            value = limits.read(text)
        except ValueError as error:
            raise BadInput(f"the result in {OUTPUT_VARIABLE} is not JSON: {error}") from None
        limits.checked("the result", value, limits.RESULT_BYTES)
        return {"result": value}

    def _read(self) -> bytes:
        try:
            file = plain_file(RESULT, self.handle)
        except FileNotFoundError:
            return b""
        except OSError as refused:
            why = "it is a link" if refused.errno == errno.ELOOP else refused.strerror
            raise BadInput(f"the result in {OUTPUT_VARIABLE} cannot be read: {why}") from None
        with os.fdopen(file, "rb") as opened:
            if os.fstat(file).st_uid != self.owner:
                raise BadInput(f"the result in {OUTPUT_VARIABLE} cannot be read: it is another user's file")
            text = opened.read(limits.RESULT_BYTES + 1)
        if len(text) > limits.RESULT_BYTES:
            raise BadInput(f"the result in {OUTPUT_VARIABLE} is larger than {limits.RESULT_BYTES:,} bytes, the limit")
        return text


@contextmanager
def opened(place: Workplace, name: str, inputs: Mapping[str, Any]) -> Iterator[Exchange]:
    """Make the directory of an attempt, and remove it afterwards.

    Args:
        place: where the command runs.
        name: of the directory; no other attempt may have it.
        inputs: what the command gets.

    Raises:
        OSError: it cannot be made.
    """
    top = worktrees(place.settings, place.account) / BELOW
    top.mkdir(parents=True, exist_ok=True)
    top.chmod(0o711 if place.account else 0o700)  # may be passed through, but not listed
    directory = top / name
    directory.mkdir(mode=0o700)
    try:
        handle = os.open(directory, DIRECTORY)
        try:
            variables = _filled(handle, directory, inputs)
            if place.account:
                _hand_over(handle, place.account)
            yield Exchange(directory, handle, place.account.uid if place.account else os.geteuid(), variables)
        finally:
            os.close(handle)
    finally:
        remove(directory)


def _filled(handle: int, directory: Path, inputs: Mapping[str, Any]) -> dict[str, str]:
    contents = {RESULT: ""} | ({INPUTS: json.dumps(inputs, ensure_ascii=False)} if inputs else {})
    for name, content in contents.items():
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=handle), "w", encoding="utf-8") as file:
            file.write(content)
    variables = {OUTPUT_VARIABLE: str(directory / RESULT)}
    return variables | ({INPUTS_VARIABLE: str(directory / INPUTS)} if inputs else {})


def _hand_over(handle: int, account: Account) -> None:
    """Give the directory to the commands' user, last of all: until then nobody else can put a file there."""
    for each in os.listdir(handle):
        os.chown(each, account.uid, account.gid, dir_fd=handle, follow_symlinks=False)
    os.chown(handle, account.uid, account.gid)


def sweep(settings: Settings) -> int:
    """Remove the directories that killed workers left; how many they were.

    Raises:
        OSError: one may not be removed.
        BadInput: there is no user that commands may run as.
    """
    top, removed = worktrees_path(settings, commands_account(settings)) / BELOW, 0
    for each in top.iterdir() if top.is_dir() else ():
        with suppress(FileNotFoundError):
            if time.time() - each.lstat().st_mtime > ABANDONED_SECONDS:
                remove(each)
                removed += 1
    return removed
