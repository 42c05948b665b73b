"""`audit verify`: checks the chains (`db.audit.verify`), and them against code, anchors, exports and the journal."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from interlock.db.audit import anchors as recorded
from interlock.db.audit import verify as audit
from interlock.db.audit.verify import Progress, Verdict
from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.workers.audit import anchor_checks, anchors, evidence, signing_keys
from interlock.workers.audit.evidence import EVER
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.versioning.export import checksum


def verify(
    runtime: Runtime,
    progress: Progress = lambda _: None,
    *,
    places: Iterable[Path] = (),
    trusted: Iterable[Path] = (),
    every_line: bool | None = None,
) -> Verdict:
    """Check that nothing was rewritten, not even with newly computed hashes.

    Args:
        runtime: the database, the definitions, the directories of keys, anchors and journal.
        progress: called now and then with the number of events read so far.
        places: further directories that hold anchors, or that have such a directory `anchors`.
        trusted: further public keys, or directories of them, to trust.
        every_line: True: compare every line of the journal and of exports; False: none; None: those that no anchor
            covers.

    Returns:
        The verdict; each problem names the instance and the event, or the anchor.

    Raises:
        DBAPIError: the database is unreachable.
        BadInput, KeyFault: a place holds no anchor, or a file no public key.
        OSError: a directory cannot be read.
    """
    anchor_directories = [_with_anchors(place) for place in places]
    keys = signing_keys.trusted_keys(runtime.settings.signing_directory, *trusted)
    verdict = audit.verify(runtime.database, progress)
    _definitions(runtime, verdict)
    anchor_checks.check_heads(runtime.database, verdict)
    evidence.compare(runtime, verdict, keys, since=_since(runtime, every_line), places=anchor_directories)
    return verdict


def _since(runtime: Runtime, every_line: bool | None) -> datetime | None:
    if every_line is None:
        with transaction(runtime.database) as connection:
            newest = recorded.newest(connection)
        return newest["made_at"] if newest else EVER
    return EVER if every_line else None


def _with_anchors(place: Path) -> Path:
    for each in (place, place / "anchors"):
        if anchors.filed(each):
            return each
    raise BadInput(f"{place} holds no anchors (anchor-NNNNNN.json)")


def _definitions(runtime: Runtime, verdict: Verdict) -> None:
    """Check that recorded definitions match the code's, because their checksums can be computed anew, too."""
    with transaction(runtime.database) as connection:
        recorded = definitions.checksums(connection)
    for each in runtime.catalogue:
        if recorded.get((each.type, each.version)) not in (None, checksum(each)):
            message = "differs from the one in the code: rewritten here, or changed there without a new version"
            verdict.note(f"definition {each.type} {each.version}", None, message)
