"""`audit verify`: checks the chains (`db.audit.verify`), and them against code, anchors, exports and the journal."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from interlock.db.audit import verify as audit
from interlock.db.audit.verify import Progress, Verdict
from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.workers.audit import anchor_checks, anchors, export_checks, exports, journal_checks, signing_keys
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
    sound = anchor_checks.check_database(runtime.database, verdict, keys)
    for place in (anchors.directory(runtime), *_copies(runtime, verdict), *anchor_directories):
        anchor_checks.check_files(runtime.database, verdict, place, keys, sound)
    place, named = exports.directory(runtime), anchor_checks.exports_named(sound)
    export_checks.check(runtime.database, verdict, place, keys, named, every_line=every_line)
    if every_line is not False:
        directory = runtime.settings.state_directory
        journal_checks.check(runtime.database, verdict, directory, every_line=bool(every_line))
    return verdict


def _copies(runtime: Runtime, verdict: Verdict) -> Iterator[Path]:
    for each in runtime.settings.anchor_copy_directories:
        if each.is_dir():
            yield each
        else:
            verdict.not_compared.append(f"the anchors in {each}: there is no such directory now")


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
