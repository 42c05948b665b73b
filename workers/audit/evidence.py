"""Compares what stands beside history with it: anchors, here and in copies, exports, and the journal."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from interlock.db.audit.verify import Verdict
from interlock.workers.audit import anchor_checks, anchors, export_checks, exports, journal_checks
from interlock.workers.audit.signed_checkpoints import TrustedKeys
from interlock.workers.runtime import Runtime

EVER = datetime(1970, 1, 1, tzinfo=UTC)


def compare(
    runtime: Runtime, verdict: Verdict, keys: TrustedKeys, *, since: datetime | None, places: Sequence[Path] = ()
) -> None:
    """Compare anchors, exports and journal with history, all but the heads that the database's anchors recorded.

    Args:
        runtime: the database, and the directories of anchors, exports and journal.
        verdict: collects the problems, and what was not compared.
        keys: the trusted public keys.
        since: compare the lines of exports that were made, and files of the journal that were written, since then;
            None: no lines.
        places: further directories of anchors.

    Raises:
        DBAPIError: the database is unreachable.
        OSError: a file or directory cannot be read.
    """
    # Listed first: an anchor is filed once it is in the database, so each of these is in there.
    filed = [*anchors.filed(anchors.directory(runtime))]
    for place in (*_copies(runtime, verdict), *places):
        filed += anchors.filed(place)
    sound = anchor_checks.check_database(runtime.database, verdict, keys)
    anchor_checks.check_files(runtime.database, verdict, filed, keys, sound)
    named = anchor_checks.exports_named(sound)
    export_checks.check(runtime.database, verdict, exports.directory(runtime), keys, named, since=since)
    if since is not None:
        journal_checks.check(runtime.database, verdict, runtime.settings.state_directory, since=since)


def _copies(runtime: Runtime, verdict: Verdict) -> Iterator[Path]:
    for each in runtime.settings.anchor_copy_directories:
        if each.is_dir():
            yield each
        else:
            verdict.not_compared.append(f"the anchors in {each}: there is no such directory now")
