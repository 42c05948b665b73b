"""`python -m interlock.supervisor.backup.schedule`: the part `backups` of `interlock up`, which takes backups.

The directory itself is the record of what was taken when, so a backup taken by hand counts, too, and nothing is taken
twice after a restart. A backup that fails is logged and tried again; older ones are deleted only after a good one.
"""

import os
import signal
import sys
import time
from pathlib import Path

import psycopg

from interlock.supervisor.backup.backup import back_up
from interlock.supervisor.backup.retention import prune
from interlock.supervisor.home import home_of
from interlock.supervisor.processes.log import line
from interlock.supervisor.servers import endpoints
from interlock.workers.audit import kept_backups, signing_keys
from interlock.workers.settings import Settings, settings
from interlock.workers.system import process_privacy
from interlock.workflows.errors import InterlockError
from interlock.workflows.output.urls import without_users

LOOK_SECONDS = 60.0  # the longest wait: a machine may have slept, and its clock may have been set
RETRY_SECONDS = 600.0


def main() -> None:
    """Take backups until asked to stop; a backup under way is then given up and removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    chosen = settings()
    process_privacy.hide(chosen)
    if path := os.environ.get("INTERLOCK_READY_FILE"):
        Path(path).touch()
    while True:
        time.sleep(take_if_due(chosen))


def take_if_due(chosen: Settings) -> float:
    """Take a backup of the embedded database if the newest is too old, then delete those that have expired.

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
        OSError: the directory cannot be read.
    """
    age = kept_backups.newest_age_seconds(chosen)
    return 0.0 if age is None else max(chosen.backup_every_seconds - age, 0.0)


def _take(chosen: Settings) -> None:
    began, place = time.monotonic(), chosen.backups_directory
    url = chosen.resolved_database_url().replace("postgresql+psycopg://", "postgresql://")
    superuser = endpoints.load(home_of(chosen)).superuser_url
    made, found = back_up(url, place, chosen.signing_directory, replicating=superuser)
    _say("backup_taken", backup=str(made), bytes=sum(found.sizes.values()), seconds=round(time.monotonic() - began, 1))
    keys = signing_keys.trusted_keys(chosen.signing_directory)
    for each in prune(place, keys, keep_last=chosen.backup_keep_last, keep_days=chosen.backup_keep_days):
        _say("backup_deleted", backup=str(each))


def _say(event: str, *, level: str = "info", **fields: object) -> None:
    print(line(event, level=level, **fields), flush=True)


if __name__ == "__main__":
    main()
