"""`audit verify`: checks the chains (`db.audit.verify`), and them against code, anchors, exports and the journal."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from interlock.db.audit import exports
from interlock.db.audit import verify as audit
from interlock.db.audit.verify import Progress, Verdict
from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.workers.audit import anchor_checks, anchors, journal_checks, signing_keys
from interlock.workers.audit import exports as exporting
from interlock.workers.runtime import Runtime
from interlock.workers.system import write_once
from interlock.workflows.errors import BadInput
from interlock.workflows.versioning.export import checksum

EXPORT = re.compile(r"export-(\d+)\..+")


def verify(
    runtime: Runtime,
    progress: Progress = lambda _: None,
    *,
    places: Iterable[Path] = (),
    trusted: Iterable[Path] = (),
    with_journal: bool | None = None,
) -> Verdict:
    """Check that nothing was rewritten, not even with newly computed hashes.

    Args:
        runtime: the database, the definitions, the directories of keys, anchors and journal.
        progress: called now and then with the number of events read so far.
        places: further directories that hold anchors, or that have such a directory `anchors`.
        trusted: further public keys, or directories of them, to trust.
        with_journal: True: compare every line of the journal with history; False: none; None: those that no anchor
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
    sound = anchor_checks.check_database(runtime.database, verdict, keys)
    for place in (anchors.directory(runtime), *anchor_directories):
        anchor_checks.check_files(runtime.database, verdict, place, keys, sound)
    _exports(runtime, verdict)
    if with_journal is not False:
        directory = runtime.settings.state_directory
        journal_checks.check(runtime.database, verdict, directory, every_line=bool(with_journal))
    return verdict


def _with_anchors(place: Path) -> Path:
    for each in (place, place / "anchors"):
        if anchors.filed(each):
            return each
    raise BadInput(f"{place} holds no anchors (anchor-NNNNNN.json)")


def _definitions(runtime: Runtime, verdict: Verdict) -> None:
    """Check that recorded definitions match the code's, because their checksums can be computed anew, too."""
    with transaction(runtime.database) as connection:
        recorded = {(row["type"], row["version"]): row["checksum"] for row in definitions.listed(connection)}
    for each in runtime.catalogue:
        if recorded.get((each.type, each.version), checksum(each)) != checksum(each):
            message = "differs from the one in the code: rewritten here, or changed there without a new version"
            verdict.note(f"definition {each.type} {each.version}", None, message)


def _exports(runtime: Runtime, verdict: Verdict) -> None:
    """Check the manifests on file against the database. A manifest after its last one is not recorded yet."""
    with transaction(runtime.database) as connection:
        known = exports.manifests(connection)
    for number, path in _manifests(exporting.directory(runtime)):
        if number in known and write_once.sha256_of(path) != known[number]:
            verdict.note(str(path), None, "changed: it is not the manifest that was written")
        elif number not in known and number < max(known, default=0):
            verdict.note(str(path), None, "the database does not know this export, but a later one")


def _manifests(place: Path) -> Sequence[tuple[int, Path]]:
    found = [(EXPORT.fullmatch(path.parent.name), path) for path in place.glob(f"export-*/{exporting.MANIFEST}")]
    return sorted((int(named[1]), path) for named, path in found if named)
