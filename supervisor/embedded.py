"""Run only PostgreSQL and Valkey, for the duration of a block: for tests, restores, the demo and benchmarks."""

import contextlib
import os
from collections.abc import Iterator

from interlock.supervisor import daemon
from interlock.supervisor.home import home_of
from interlock.supervisor.servers import endpoints
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.settings import Settings

CELERY_PARTS = ("triggers", "effects", "gates", "work", "beat", "flower", "metrics", "commands")


@contextlib.contextmanager
def running(settings: Settings, *, keep: bool = False) -> Iterator[Servers]:
    """Run the embedded servers of `settings.home` for the duration of a block; yields their URLs.

    A home that was empty before is deleted afterwards, unless `keep`. The servers are restarted if they die. They end
    with this process, even if it is killed: their supervisor notices that the pipe to it closed. Raises the exceptions
    of `supervisor.daemon.launch`.
    """
    home = home_of(settings)
    ephemeral = not keep and not (home.path.exists() and any(home.path.iterdir()))
    tether, hold = os.pipe()
    try:
        try:
            process = daemon.launch(settings, without=CELERY_PARTS, tether=tether, ephemeral=ephemeral)
        finally:
            os.close(tether)
        try:
            yield endpoints.load(home)
        finally:
            process.terminate()
            process.wait()
    finally:
        os.close(hold)
