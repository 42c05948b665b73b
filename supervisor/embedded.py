"""PostgreSQL and Valkey alone, for as long as a block runs: for tests, the demo and benchmarks."""

import contextlib
import os
from collections.abc import Iterator

from supervisor import daemon, servers
from supervisor.home import home_of
from supervisor.servers import Servers
from workers.settings import Settings

CELERY_PARTS = ("triggers", "effects", "gates", "work", "beat", "flower", "metrics")


@contextlib.contextmanager
def running(settings: Settings, *, keep: bool = False) -> Iterator[Servers]:
    """Run the embedded servers of `settings.home` while the block runs; yields their URLs.

    A home that was empty before is deleted afterwards, unless `keep`. The servers are restarted when they die, and
    end with this process, even when it is killed: their supervisor notices that the pipe to it closed.

    Raises what `supervisor.daemon.launch` raises.
    """
    home = home_of(settings)
    ephemeral = not keep and not home.servers.exists()
    tether, hold = os.pipe()
    try:
        try:
            process = daemon.launch(settings, without=CELERY_PARTS, tether=tether, ephemeral=ephemeral)
        finally:
            os.close(tether)
        try:
            yield servers.load(home)
        finally:
            process.terminate()
            process.wait()
    finally:
        os.close(hold)
