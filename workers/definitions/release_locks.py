"""The lock files of definitions: one for the shipped ones, one beside each module of a user's, `MODULE.lock`."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from interlock import workflows
from interlock.workflows.catalogue import WORKFLOWS
from interlock.workflows.definition import Definition
from interlock.workflows.errors import BadInput
from interlock.workflows.versioning.export import canonical_checksum, checksum, recorded
from interlock.workflows.versioning.lock import Key, misnumbered, read, written
from interlock.workflows.versioning.lock import complaints as judged

SHIPPED = Path(workflows.__file__).parent / "definitions.lock"


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file, and the definitions that it is for."""

    path: Path
    definitions: tuple[Definition, ...]

    def forms(self) -> dict[Key, dict[str, Any]]:
        """The forms it holds; none if there is no file yet. Raises `BadInput` if it is not a lock file."""
        try:
            return read(self.path.read_text(encoding="utf-8"), str(self.path))
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{self.path} cannot be read: {error}") from error


def locks(modules: Sequence[str]) -> list[Lock]:
    """The lock of the shipped definitions, and those of `modules`."""
    found = [Lock(SHIPPED, tuple(WORKFLOWS.values()))]
    for name in modules:
        module = import_module(name)
        found.append(
            Lock(Path(str(module.__file__)).with_suffix(".lock"), tuple(getattr(module, "WORKFLOWS", {}).values()))
        )
    return found


def complaints(modules: Sequence[str]) -> list[str]:
    """The changes to released versions, of the shipped definitions and of each module that has a lock."""
    present = [lock for lock in locks(modules) if lock.path.exists() or lock.path == SHIPPED]
    return [message for lock in present for message in judged(lock.forms(), lock.definitions)]


def lock(modules: Sequence[str], *, forget: bool = False) -> list[str]:
    """Add the new versions to their locks. Returns those, and those taken out.

    Args:
        modules: a user's, beside the shipped ones.
        forget: take out the versions that are no longer in the code.

    Raises:
        BadInput: a released version was changed, or a new one's number is too low for its changes; nothing is written.
    """
    done: list[str] = []
    for each in locks(modules):
        forms = each.forms()
        known = {(one.type, one.version): one for one in each.definitions}
        new = [one for key, one in known.items() if key not in forms]
        changed = {
            key: forms[key]
            for key, one in known.items()
            if key in forms and canonical_checksum(forms[key]) != checksum(one)
        }
        wrong = [
            *judged(changed, [known[key] for key in changed]),
            *(s for one in new for s in misnumbered(forms, one)),
        ]
        if wrong:
            raise BadInput("; ".join(wrong))
        gone = sorted(forms.keys() - known.keys()) if forget else []
        if new or gone:
            kept = {key: form for key, form in forms.items() if key not in gone}
            each.path.write_text(written(kept | {(one.type, one.version): recorded(one) for one in new}), "utf-8")
        done += [f"{one.type} {one.version}" for one in new] + [f"{' '.join(key)} (taken out)" for key in gone]
    return done
