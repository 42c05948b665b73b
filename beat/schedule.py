"""The sweeps and how often each runs. Two beats do no harm: a sweep runs once per period, whoever asks first."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sweep:
    """A named sweep and its period in seconds; `says` is what it is for."""

    name: str
    every_seconds: float
    says: str


SCHEDULE = (
    Sweep("dispatch", 1.0, "wake what is due, and send again the hints that were lost"),
    Sweep("schedule", 1.0, "let the scheduler see moves whose hint was lost"),
    Sweep("work", 1.0, "send free workers to tasks whose hint was lost"),
    Sweep("heartbeats", 5.0, "give up workers that fell silent, `uet_worker` or not, and give tasks back"),
    Sweep("leases", 5.0, "take effects back from workers that went silent"),
    Sweep("relay", 1.0, "carry committed events, in commit order, to the Redis stream"),
    Sweep("metrics", 5.0, "add up what the counters have noted"),
    Sweep("jobs", 5.0, "give waiting jobs the workers that have become idle"),
    Sweep("stuck", 60.0, "find who stands still for too long, and say so once"),
    Sweep("anchor", 60.0, "sign the heads of the chains that changed, so that a cut tail shows"),
    Sweep("export", 300.0, "file history behind the last export, with a signed manifest, if it is time"),
    Sweep("archive", 3600.0, "move what ended long ago, with its history, into the archive"),
    Sweep("prune", 3600.0, "delete finished requests and effects past their keeping time; history never"),
)

BY_NAME = {sweep.name: sweep for sweep in SCHEDULE}

OVERDUE_PERIODS = 5  # a sweep silent for so many of its periods (and at least OVERDUE_SECONDS) is reported
OVERDUE_SECONDS = 15.0
