"""`python -m interlock.supervisor.backup.schedule`: the part `backups` of `interlock up`, which takes backups.

The directory itself is the record of what was taken when, so a backup taken by hand counts, too, and nothing is taken
twice after a restart. A backup that fails is logged and tried again; older ones are deleted only after a good one.
Once a week a drill restores the one that was just taken.

Without `INTERLOCK_BACKUP_DIRECTORY` backups are beside the data, on the same disk. The first one is due when the home
is a period old, and none is taken that would leave PostgreSQL without room.
"""

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psycopg

from interlock.supervisor import home_marker
from interlock.supervisor.backup.backup import back_up
from interlock.supervisor.backup.base_backup import BackupFailed
from interlock.supervisor.backup.retention import prune
from interlock.supervisor.environment import PYTHON
from interlock.supervisor.home import home_of
from interlock.supervisor.processes.log import line
from interlock.supervisor.servers import endpoints
from interlock.workers.audit import backup_drills, kept_backups, signing_keys
from interlock.workers.settings import Settings, settings
from interlock.workers.system import process_privacy
from interlock.workers.system.ended_by import ended_by
from interlock.workers.system.readiness import announce_ready
from interlock.workflows.errors import InterlockError
from interlock.workflows.output.urls import without_users

LOOK_SECONDS = 60.0  # the longest wait: a machine may have slept, and its clock may have been set
RETRY_SECONDS = 600.0
ROOM = 2  # beside the data, a backup is taken only where so many times the database's size is free


def main() -> None:
    """Take backups until asked to stop; a backup under way is then given up and removed."""
    with ended_by({signal.SIGTERM}, code=0):
        chosen = settings()
        process_privacy.hide(chosen)
        announce_ready()
        while True:
            time.sleep(take_if_due(chosen))


def take_if_due(chosen: Settings) -> float:
    """Take a backup of the embedded database if the newest is too old; then delete those that have expired, and prove
    that the new one can be restored, if that is due.

    Returns:
        The seconds until the next call.
    """
    try:
        if (wait := due_in(chosen)) > 0:
            return min(wait, LOOK_SECONDS)
        _take(chosen)
    except (InterlockError, psycopg.Error, OSError) as fault:
        wait = min(RETRY_SECONDS, chosen.backup_every_seconds)
        _say("backup_failed", level="error", error=without_users(str(fault).strip()), again_in_seconds=wait)
        return wait
    return min(LOOK_SECONDS, chosen.backup_every_seconds)


def due_in(chosen: Settings) -> float:
    """The seconds until the next backup is due; 0 if it is.

    Raises:
        KeyFault: a public key cannot be read.
        OSError: the directory, or the home's marker, cannot be read.
    """
    age = kept_backups.newest_age_seconds(chosen)
    if age is None and chosen.backup_directory is None:
        age = time.time() - (chosen.home / home_marker.NAME).stat().st_mtime
    return 0.0 if age is None else max(chosen.backup_every_seconds - age, 0.0)


def drill_is_due(chosen: Settings) -> bool:
    """Whether the last drill that went well is too old.

    Raises:
        OSError: the directory cannot be read.
    """
    age = backup_drills.proven_seconds(backup_drills.last(chosen.backups_directory))
    return chosen.backup_drill_seconds > 0 and (age is None or age > chosen.backup_drill_seconds)


def _take(chosen: Settings) -> None:
    began, place = time.monotonic(), chosen.backups_directory
    url = chosen.resolved_database_url().replace("postgresql+psycopg://", "postgresql://")
    superuser = endpoints.load(home_of(chosen)).superuser_url
    if chosen.backup_directory is None:
        _require_room(chosen, superuser)
    made, found = back_up(url, place, chosen.signing_directory, replicating=superuser)
    _say("backup_taken", backup=str(made), bytes=sum(found.sizes.values()), seconds=round(time.monotonic() - began, 1))
    keys = signing_keys.trusted_keys(chosen.signing_directory)
    keep_last, keep_days = chosen.backup_retention
    for each in prune(place, keys, keep_last=keep_last, keep_days=keep_days):
        _say("backup_deleted", backup=str(each))
    if drill_is_due(chosen):
        _drill(made)


def _require_room(chosen: Settings, superuser: str) -> None:
    with psycopg.connect(superuser, autocommit=True) as connection:
        (size,) = connection.execute("SELECT sum(pg_database_size(oid))::bigint FROM pg_database").fetchone() or (0,)
    free = shutil.disk_usage(chosen.home).free
    if free < ROOM * size:
        raise BackupFailed(
            f"{chosen.home} has {free / 1e6:,.0f} MB free and the databases {size / 1e6:,.0f} MB: a backup there could "
            "leave PostgreSQL without room. Set INTERLOCK_BACKUP_DIRECTORY to a directory on another disk"
        )


def _drill(made: Path) -> None:
    """Restore a backup beside what is running, in a process of its own, whose memory ends with it."""
    command = [*PYTHON, "-m", "interlock.cli.main", "backup", "drill", str(made), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, complaint = process.communicate()
        finally:
            process.terminate()  # if this process is ended; it deletes what it restored
    found = json.loads(out) if out else {}
    if process.returncode == 0:
        _say("backup_drilled", backup=str(made), events=found["events"], restore_seconds=found["restore_seconds"])
    else:
        said = found.get("problem") or complaint.strip() or f"{len(found.get('problems', ()))} problems in its history"
        _say("backup_drill_failed", level="error", backup=str(made), error=without_users(said))


def _say(event: str, *, level: str = "info", **fields: object) -> None:
    print(line(event, level=level, **fields), flush=True)


if __name__ == "__main__":
    main()
