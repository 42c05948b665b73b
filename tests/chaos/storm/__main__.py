"""A storm on an installation of its own: `python -m tests.chaos.storm --minutes 30 --seed 7`."""

import argparse
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

import structlog

from tests.chaos.installation import installed
from tests.chaos.receiver import receiving
from tests.chaos.storm.storm import Storm

SETTINGS = {"definitions": (), "heartbeat_seconds": 2.0, "recovery_seconds": 12.0}


def main() -> int:
    """Storm, and tell what came of it; 1 where something is wrong."""
    asked = _asked()
    os.environ["PGOPTIONS"] = "-c search_path=interlock"  # for `Installation.sql`
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as temporary, receiving() as receiver:
        place, plans = Path(temporary) / "installation", Path(temporary) / "plans"
        place.mkdir()
        plans.mkdir()
        with installed(place, receiver, **SETTINGS) as installation:
            storm = Storm(installation, plans, asked.seed, asked.runs, asked.calm)
            print(f"seed {asked.seed}, {asked.minutes:g} minutes, home {installation.home.path}", flush=True)
            wrong = storm.rage(asked.minutes * 60)
            print(json.dumps(storm.summary(), indent=2))
    for each in wrong:
        print(f"WRONG: {each}")
    print(
        "all runs ended, everything has a way on, history verifies" if not wrong else f"{len(wrong)} things are wrong"
    )
    return 1 if wrong else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.storm", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long it storms; letting all end comes on top")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), help="what chance draws from")
    parser.add_argument("--runs", type=int, default=3, help="runs under way at a time")
    parser.add_argument("--calm", type=float, default=5.0, help="longest time between two faults, in seconds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
