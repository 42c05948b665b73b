"""Checks of evidence: journal, verification, anchors, their copies, and backups."""

from collections.abc import Iterator

from interlock.db.audit import anchors, verification
from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.workers.audit import anchor_copies, backup_drills, kept_backups, signing_keys
from interlock.workers.audit.backup_drills import LastDrill
from interlock.workers.audit.signing_keys import KeyFault
from interlock.workers.operations.checks.finding import Finding
from interlock.workers.operations.stuck.words import span
from interlock.workers.relay.journal_check import inspect
from interlock.workers.runtime import Runtime
from interlock.workflows.output.counts import number_of

OVERDUE_ANCHORS = 3  # periods
LATE_COPY_SECONDS = 300.0  # the sweep copies each minute
OVERDUE_BACKUPS = 2  # periods, as in the alert


def check_journal(runtime: Runtime) -> Iterator[Finding]:
    """Whether the journal continues."""
    if not runtime.settings.journal:
        yield Finding("journal", "ok", "switched off (INTERLOCK_JOURNAL)")
        return
    with transaction(runtime.database) as connection:
        yield from (Finding("journal", *trouble) for trouble in inspect(connection, runtime.settings.state_directory))


def check_verification(runtime: Runtime) -> Iterator[Finding]:
    """What the verification found, and when history was last verified."""
    every_seconds = runtime.settings.verify_seconds
    with transaction(runtime.database) as connection:
        known, age = verification.known(connection), definitions.age_seconds(connection)
    ended = next((each for each in known if each["finished_at"]), None)
    age = ended["age_seconds"] if ended else age
    if found := [problem for each in known for problem in each["found"]]:
        first = f"{found[0]['instance']}" + ("" if found[0]["seq"] is None else f", event {found[0]['seq']}")
        message = f"history was changed in {number_of(sum(each['problems'] for each in known), 'place')}, first {first}"
        yield Finding(
            "verification", "fail", f"{message}: {found[0]['message']}", "interlock playbook show audit-finding"
        )
    elif every_seconds == 0:
        yield Finding("verification", "ok", "history is verified on request only (INTERLOCK_VERIFY_SECONDS=0)")
    elif age > 2 * every_seconds:
        message = f"history was last verified as a whole {span(age)} ago"
        yield Finding("verification", "warn", message, "interlock audit verify; is beat up?")
    elif ended:
        yield Finding("verification", "ok", f"{ended['instances']} instances were verified {span(age)} ago")
    else:
        yield Finding("verification", "ok", "the first verification is under way")


def check_anchors(runtime: Runtime) -> Iterator[Finding]:
    """How long the newest events have had no anchor."""
    with transaction(runtime.database) as connection:
        seconds = anchors.uncovered_seconds(connection)
    if seconds > OVERDUE_ANCHORS * runtime.settings.anchor_seconds:
        message = (
            f"events of the last {seconds / 3600:.1f} h have no anchor: nothing would show that the newest were deleted"
        )
        yield Finding("anchors", "warn", message, "interlock audit anchor: makes one, or prints why it cannot")
    else:
        yield Finding("anchors", "ok", f"events of the last {seconds:.0f} s are not anchored yet")


def check_copies(runtime: Runtime) -> Iterator[Finding]:
    """Anchors that are not copied where they should be."""
    with transaction(runtime.database) as connection:
        found = anchor_copies.states(connection, runtime.settings)
    for each in found:
        late = each.newest_age_seconds is not None and each.newest_age_seconds > LATE_COPY_SECONDS
        if each.error or (each.behind and late):
            message = f"{each.behind} anchors are not copied to {each.destination}: {each.error or 'is beat running?'}"
            yield Finding("copies", "warn", message, "interlock audit anchor: tries again, and prints the reason")
        else:
            yield Finding("copies", "ok", f"anchors are copied to {each.destination}, up to anchor {each.number}")


def check_backups(runtime: Runtime) -> Iterator[Finding]:
    """The age of the newest backup, backups that cannot be restored, and when a drill last restored one."""
    chosen = runtime.settings
    if not kept_backups.are_watched(chosen):
        message = "a PostgreSQL of your own: its administrator backs it up, Interlock does not"
        yield Finding("backups", "ok", message)
        return
    try:
        age, drill = kept_backups.newest_age_seconds(chosen), backup_drills.last(chosen.backups_directory)
        keys = signing_keys.trusted_keys(chosen.signing_directory)
        kept = list(kept_backups.newest_first(chosen.backups_directory, keys))
    except (OSError, KeyFault) as unreadable:
        message = f"{chosen.backups_directory} cannot be read: {getattr(unreadable, 'strerror', None) or unreadable}"
        yield Finding("backups", "warn", message, "interlock playbook show backup-overdue")
        return
    yield _newest_backup(runtime, age)
    if damaged := [each for each in kept if each.problem and not each.foreign]:
        message = f"{len(damaged)} of {len(kept)} backups cannot be restored, first {damaged[0].path.name}"
        yield Finding("backups", "warn", message, "interlock backup list")
    if age is not None:
        yield _last_drill(runtime, drill)


def _newest_backup(runtime: Runtime, age: float | None) -> Finding:
    chosen, found = runtime.settings, "there is no complete backup"
    if age is not None:
        found = f"the newest backup is {span(age)} old"
    with transaction(runtime.database) as connection:
        waited = definitions.age_seconds(connection) if age is None else age
    if chosen.backup_every_seconds == 0 and chosen.database_url is None:
        message = f"nothing is backed up by itself (INTERLOCK_BACKUP_EVERY_SECONDS=0), and {found}"
        return Finding("backups", "warn", message, "unset it; set INTERLOCK_BACKUP_DIRECTORY; interlock backup take")
    if waited <= OVERDUE_BACKUPS * chosen.backup_every_seconds:
        where = "" if chosen.backup_directory else f"; backups are in {chosen.backups_directory}, beside the data"
        return Finding("backups", "ok", f"{found}{where}")
    if chosen.database_url is not None:
        return Finding(
            "backups", "warn", found, "Interlock schedules none of a PostgreSQL of your own; its administrator does"
        )
    return Finding("backups", "warn", found, "interlock backup take; interlock playbook show backup-overdue")


def _last_drill(runtime: Runtime, drill: LastDrill | None) -> Finding:
    every_seconds = runtime.settings.backup_drill_seconds
    if drill and drill.problem:
        message = f"the last drill could not restore {drill.backup}: {drill.problem}"
        return Finding("backups", "fail", message, "interlock backup list; interlock backup take")
    age, found = backup_drills.proven_seconds(drill), "no drill has shown that a backup can be restored"
    if age is not None:
        found = f"a drill restored and verified a backup {span(age)} ago"
    with transaction(runtime.database) as connection:
        waited = definitions.age_seconds(connection) if age is None else age
    if every_seconds and waited > OVERDUE_BACKUPS * every_seconds:
        return Finding("backups", "warn", found, "interlock backup drill; interlock playbook show backup-overdue")
    return Finding("backups", "ok", found)
