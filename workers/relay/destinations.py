"""Where the relay carries events to, composed from the settings."""

from workers.journal import Journal
from workers.metrics import Counters
from workers.relay import Destination
from workers.runtime import Runtime
from workers.stream import Stream


def destinations(runtime: Runtime) -> list[Destination]:
    """A process's destinations, each with what it needs; none of them has opened anything yet."""
    chosen: list[Destination] = [Counters()]
    if runtime.redis is not None:
        chosen.append(Stream(runtime.redis, maxlen=runtime.settings.stream_maxlen))
    if runtime.settings.journal:
        chosen.append(journal(runtime))
    return chosen


def journal(runtime: Runtime) -> Journal:
    """The journal as the settings have it, opened by whoever uses it."""
    chosen = runtime.settings
    return Journal(chosen.state_directory, max_bytes=chosen.journal_bytes, daily=chosen.journal_daily)
