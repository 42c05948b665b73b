"""`python -m interlock.workers.late_node worker …`: a node that starts once it has something to do.

The node of `deliveries` has nothing to do before the first subscription, and most installations never have one. Until
then it is a process that looks every few seconds: it has no connection, and a tenth of a node's memory.
"""

import os
import signal
import time

import psycopg

from interlock.db.schema import in_schema
from interlock.workers.settings import settings
from interlock.workers.system import process_privacy
from interlock.workers.system.readiness import announce_ready

LOOK_SECONDS, CONNECT_SECONDS = 5.0, 5
NEEDED = in_schema("SELECT EXISTS (SELECT FROM interlock.subscriptions)")


def main() -> None:
    """Wait until there is a subscription, and be a node of Celery from then on; never returns."""
    chosen = settings()
    process_privacy.hide(chosen)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # with nothing to tidy up, also in the middle of a look
    announce_ready()
    while not needed(chosen.resolved_database_url().replace("+psycopg", "", 1)):
        time.sleep(LOOK_SECONDS)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    from interlock.workers import node  # noqa: PLC0415 - what takes the memory

    node.main()


def needed(url: str) -> bool:
    """Whether there is a subscription, as far as the database answers. `url`: of PostgreSQL, in libpq's form."""
    try:
        with psycopg.connect(url, connect_timeout=CONNECT_SECONDS, autocommit=True) as connection:
            return connection.execute(NEEDED.encode()).fetchone() == (True,)
    except psycopg.Error:
        return False


if __name__ == "__main__":
    main()
