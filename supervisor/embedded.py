"""Run only PostgreSQL and Valkey, for the duration of a block: for tests, restores, the demo and benchmarks."""

import contextlib
import os
import select
from collections.abc import Iterator, Sequence

from interlock.supervisor import daemon
from interlock.supervisor.home import home_of
from interlock.supervisor.servers import endpoints
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.settings import Settings

CELERY_PARTS = (
    *("triggers", "effects", "deliveries", "gates", "work", "beat"),
    *("flower", "metrics", "api", "backups", "commands"),
)


@contextlib.contextmanager
def running(
    settings: Settings, *, keep: bool = False, discard: bool = False, inherits: Sequence[int] = ()
) -> Iterator[Servers]:
    """Run the embedded servers of `settings.home` for the duration of a block; yields their URLs.

    A home that was empty before is deleted afterwards, unless `keep`; with `discard` any home is. The servers are
    restarted if they die. They end with this process, even if it is killed: their supervisor notices that the pipe to
    it closed, and keeps the descriptors in `inherits` open until it has ended. Raises the exceptions of
    `supervisor.daemon.launch`.
    """
    home = home_of(settings)
    ephemeral = discard or (not keep and not (home.path.exists() and any(home.path.iterdir())))
    tether, hold = os.pipe()
    ended, alive = os.pipe()  # shows the supervisor's end, even if an exception came before its process was known
    passed = [*inherits, alive]
    try:
        try:
            process = daemon.launch(settings, without=CELERY_PARTS, tether=tether, ephemeral=ephemeral, inherits=passed)
        finally:
            os.close(tether)
            os.close(alive)
        try:
            yield endpoints.load(home)
        finally:
            process.terminate()
            process.wait()
    finally:
        os.close(hold)
        select.select([ended], [], [], daemon.STOP_SECONDS)
        os.close(ended)
