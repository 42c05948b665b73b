"""Compare forms with `decide` on random sequences: `python -m tests.conformance --sequences 10000 --seed 1`."""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from interlock.supervisor.embedded import running
from interlock.workers.settings import Settings
from tests import databases
from tests.conformance.compare import Comparison, Play, compare
from tests.conformance.in_handover import OverThere
from tests.conformance.in_scxml import InScxml, seen
from tests.conformance.in_sql import InPostgres
from tests.conformance.in_temporal import OnTemporal
from tests.conformance.in_xstate import CannotRun, UnderNode, invalid_asl
from tests.homes import open_directory


@contextmanager
def in_sql() -> Iterator[Play]:
    """The SQL form in an embedded PostgreSQL."""
    with open_directory() as directory, running(Settings(home=directory / "home")) as servers:
        url = make_conninfo(databases.as_superuser(servers, servers.database_url))
        with psycopg.connect(url, autocommit=True) as connection:
            yield InPostgres(connection).play


@contextmanager
def in_xstate() -> Iterator[Play]:
    """The XState form under Node."""
    with tempfile.TemporaryDirectory() as directory:
        yield UnderNode(Path(directory)).play


@contextmanager
def in_temporal() -> Iterator[Play]:
    """The Temporal form on the SDK's own workflow instances."""
    logging.disable()  # refusals that nobody waits for
    with tempfile.TemporaryDirectory() as directory:
        yield OnTemporal(Path(directory)).play


@contextmanager
def in_handover() -> Iterator[Play]:
    """The Temporal form again: instances that are handed over to it on their way."""
    logging.disable()
    with tempfile.TemporaryDirectory() as directory:
        yield OverThere(Path(directory)).play


@contextmanager
def in_scxml() -> Iterator[Play]:
    """The SCXML form in python-statemachine."""
    with tempfile.TemporaryDirectory() as directory:
        yield InScxml(Path(directory)).play


FORMS = {"sql": in_sql, "xstate": in_xstate, "temporal": in_temporal, "handover": in_handover, "scxml": in_scxml}
SEEN = {"scxml": seen}  # what of an answer a form says, if not all


def main() -> int:
    """Play the sequences in each form, and print what came of it; 1 where an answer differs or a form cannot run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=10_000, help="for each form, over every shipped definition")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first; the next one's is one more")
    parser.add_argument("--form", choices=sorted(FORMS), action="append", help="only this one; may be repeated")
    asked = parser.parse_args()
    worst = 0 if asked.form else validate()
    for name in asked.form or FORMS:
        began = time.monotonic()
        try:
            with FORMS[name]() as play:
                found = compare(play, asked.sequences, asked.seed, SEEN.get(name, lambda answer: answer))
        except CannotRun as reason:
            print(f"{name}: not run: {reason}")
            worst = 1
            continue
        print(_line(name, found, asked.seed, time.monotonic() - began))
        for each in found.differing:
            print(f"  {each}")
        worst |= bool(found.differing)
    return worst


def validate() -> int:
    """Validate the form that cannot run here, and print what came of it; 1 where something is not valid."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            said = invalid_asl(Path(directory))
        except CannotRun as reason:
            said = str(reason)
    print(f"asl: not run; {said or 'every definition is valid to asl-validator'}")
    return int(bool(said))


def _line(name: str, found: Comparison, seed: int, seconds: float) -> str:
    seeds = f"seeds {seed} to {seed + found.sequences - 1}"
    kinds = ", ".join(f"{kind} {count}" for kind, count in found.kinds.most_common())
    verdict = f"{found.differences} sequences differ" if found.differences else "all alike"
    return f"{name}: {found.sequences} sequences, {found.steps} steps, {seeds}, {seconds:.0f} s: {verdict} ({kinds})"


if __name__ == "__main__":
    sys.exit(main())
