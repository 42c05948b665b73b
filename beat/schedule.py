"""The sweeps and their periods. Several beats do no harm: each sweep runs only once per period."""

from typing import NamedTuple


class Sweep(NamedTuple):
    """A named sweep and its period in seconds; `description` is its purpose. A long one may take minutes."""

    name: str
    every_seconds: float
    description: str
    long: bool = False


SCHEDULE = (
    Sweep("dispatch", 1.0, "wake what is due, and send again the wakeups that were lost"),
    Sweep("schedules", 1.0, "fire what schedules are due to fire, each time once"),
    Sweep("heartbeats", 5.0, "give up workers that fell silent, `uet_worker` or not, and give tasks back"),
    Sweep("leases", 5.0, "take effects back from workers that went silent"),
    Sweep("relay", 1.0, "carry committed events, in commit order, to the Redis stream"),
    Sweep("subscriptions", 1.0, "deliver events to the endpoints of subscriptions"),
    Sweep("metrics", 5.0, "add up what the counters have noted"),
    Sweep("jobs", 5.0, "give waiting jobs the workers that have become idle"),
    Sweep("brakes", 5.0, "tell people of brakes that were put on; find instances that go back and forth"),
    # Last in its message: the request that it examines may crash the process.
    Sweep(
        "partitions", 5.0, "get a partition moving whose oldest request is not applied; set aside what ends its process"
    ),
    Sweep("stuck", 60.0, "find who stands still for too long, and say so once"),
    Sweep("verify", 60.0, "check a part of history, so that a rewritten event is found without being asked for"),
    Sweep("evidence", 300.0, "compare anchors, exports and the journal with history, once in each pass", long=True),
    Sweep("anchor", 60.0, "sign the heads of the chains that changed, so that a cut tail shows"),
    Sweep("export", 300.0, "file history behind the last export, with a signed manifest, if it is time"),
    Sweep("archive", 3600.0, "move what ended long ago, with its history, into the archive"),
    Sweep("prune", 3600.0, "delete finished requests and effects past their keeping time; history never"),
)

BY_NAME = {sweep.name: sweep for sweep in SCHEDULE}
TOGETHER_SECONDS = 5.0  # sweeps up to this period are quick: one message a second asks for all that are due
QUICK = tuple(sweep for sweep in SCHEDULE if sweep.every_seconds <= TOGETHER_SECONDS)
MESSAGES = {"quick": QUICK} | {sweep.name: (sweep,) for sweep in SCHEDULE if sweep not in QUICK}
"""What beat sends, each as often as its most frequent sweep is due: a name, and the sweeps to run in their order."""

OVERDUE_PERIODS = 5  # a sweep that did not run for so many of its periods (at least OVERDUE_SECONDS) is reported
OVERDUE_SECONDS = 15.0
