"""`audit verify`: the chains against themselves (`db.audit`), the code, anchors, exports and the journal."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from db import audit, definitions, exports
from db.audit import Progress, Verdict
from db.connect import transaction
from workers.auditing import anchor_checks, files, journal_checks, keys
from workers.auditing import anchors as making
from workers.auditing import exports as exporting
from workers.runtime import Runtime
from workflows.errors import BadInput
from workflows.export import checksum

EXPORT = re.compile(r"export-(\d+)\..+")


def verify(
    runtime: Runtime,
    progress: Progress = lambda _: None,
    *,
    places: Iterable[Path] = (),
    trusted: Iterable[Path] = (),
    with_journal: bool | None = None,
) -> Verdict:
    """Check that nothing was rewritten, not even by somebody who computed the hashes anew.

    Args:
        runtime: the database, the definitions, the directories of keys, anchors and journal.
        progress: told the number of events read so far, now and then.
        places: further directories that hold anchors, or hold such a directory `anchors`.
        trusted: further public keys, or directories of them, that are believed.
        with_journal: compare every line of the journal with history, too; False: none; None: what no anchor has seen.

    Returns:
        The verdict; each problem names the instance and the event, or the anchor.

    Raises:
        DBAPIError: the database is away.
        BadInput, KeyFault: a place holds no anchor, or a file no public key.
        OSError: a directory cannot be read.
    """
    given = [_with_anchors(place) for place in places]
    believed = keys.believed(runtime.settings.signing_directory, *trusted)
    verdict = audit.verify(runtime.database, progress)
    _definitions(runtime, verdict)
    sound = anchor_checks.check_database(runtime.database, verdict, believed)
    for place in (making.directory(runtime), *given):
        anchor_checks.check_files(runtime.database, verdict, place, believed, sound)
    _exports(runtime, verdict)
    if with_journal is not False:
        directory = runtime.settings.state_directory
        journal_checks.check(runtime.database, verdict, directory, every_line=bool(with_journal))
    return verdict


def _with_anchors(place: Path) -> Path:
    for each in (place, place / "anchors"):
        if making.filed(each):
            return each
    raise BadInput(f"{place} holds no anchors (anchor-NNNNNN.json)")


def _definitions(runtime: Runtime, verdict: Verdict) -> None:
    """Check that what moves are judged by is what the code has: a checksum can be computed anew, too."""
    with transaction(runtime.database) as connection:
        recorded = {(row["type"], row["version"]): row["checksum"] for row in definitions.listed(connection)}
    for each in runtime.catalogue:
        if recorded.get((each.type, each.version), checksum(each)) != checksum(each):
            says = "differs from the one in the code: rewritten here, or changed there without a new version"
            verdict.note(f"definition {each.type} {each.version}", None, says)


def _exports(runtime: Runtime, verdict: Verdict) -> None:
    """Check that the manifests on file are those the database knows; one behind its last is still to be entered."""
    with transaction(runtime.database) as connection:
        known = exports.manifests(connection)
    for number, path in _manifests(exporting.directory(runtime)):
        if number in known and files.sha256_of(path) != known[number]:
            verdict.note(str(path), None, "changed: it is not the manifest that was written")
        elif number not in known and number < max(known, default=0):
            verdict.note(str(path), None, "the database does not know this export, but a later one")


def _manifests(place: Path) -> Sequence[tuple[int, Path]]:
    found = [(EXPORT.fullmatch(path.parent.name), path) for path in place.glob(f"export-*/{exporting.MANIFEST}")]
    return sorted((int(named[1]), path) for named, path in found if named)
