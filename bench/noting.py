"""`python -m bench.noting worker …`: an Interlock node that writes the instant of each commit into shared memory."""

import time
from typing import Any

from sqlalchemy.engine.default import DefaultDialect

from bench.empty import SLOT, slots
from interlock.workers.node import main

_commit = DefaultDialect.do_commit


def _commit_and_note(dialect: DefaultDialect, dbapi_connection: Any) -> None:
    _commit(dialect, dbapi_connection)
    SLOT.pack_into(slots(), 0, time.monotonic_ns())


DefaultDialect.do_commit = _commit_and_note  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
