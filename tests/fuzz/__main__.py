"""Fuzz the doors for some minutes: `make fuzz MINUTES=…`, or `python -m tests.fuzz --minutes 10 --door plans`."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fuzz.corpus import keep, kept
from tests.fuzz.registry import DOORS

SAID = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: \d+ corp: (\d+)/")
ENDS = (0, 70, 71, 77)  # as asked; what took too long, took too much memory, ended the process: all kept as crashes
STARTING_SECONDS = 120  # servers, imports, and what is under way at the end
FOUND = Path(".fuzz")


@dataclass(frozen=True, slots=True)
class Count:
    """What came of fuzzing a door: `coverage` are edges of our code, `kept` what is in its corpus now."""

    door: str
    seconds: float
    executions: int
    coverage: int
    corpus: int
    kept: int
    crashes: int


def main() -> int:
    """Fuzz, keep what was worth it, and tell the counts; 1 where something crashed."""
    asked = _asked()
    doors = asked.door or list(DOORS)
    counts = [fuzz(door, asked.minutes * 60 / len(doors)) for door in doors]
    if asked.json:
        print(json.dumps([asdict(each) for each in counts], indent=2))
    else:
        _show(counts)
    return 1 if any(each.crashes for each in counts) else 0


def fuzz(door: str, seconds: float) -> Count:
    """Fuzz a door for so long. What crashes lies in `.fuzz/DOOR/crashes`, with what it said; the corpus is replaced."""
    place = FOUND / door
    inputs = place / "corpus"
    inputs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        sown, smallest = Path(temporary) / "sown", Path(temporary) / "smallest"
        smallest.mkdir()
        _sow(sown, [*DOORS[door].seeds, *kept(door)])
        began = time.monotonic()
        said = _engine(door, place, seconds, f"-max_total_time={round(seconds)}", inputs, sown)
        took = time.monotonic() - began
        _engine(door, place, 600, "-merge=1", smallest, inputs, sown)
        left = keep(door, [each.read_bytes() for each in smallest.iterdir()])
    executions, coverage, corpus = map(int, (SAID.findall(said) or [(0, 0, 0)])[-1])
    return Count(door, round(took, 1), executions, coverage, corpus, left, len(list(_crashes(place))))


def _sow(directory: Path, inputs: Iterable[bytes]) -> None:
    directory.mkdir()
    for number, each in enumerate(inputs):
        (directory / str(number)).write_bytes(each)


def _engine(door: str, place: Path, seconds: float, *options: object) -> str:
    """Run the engine; what it said. It ends by itself, or with what no Python can catch: then the input is kept."""
    command = [sys.executable, "-m", "tests.fuzz.engine", door, str(place), f"-artifact_prefix={place}/crashes/"]
    ended = subprocess.run(
        [*command, *map(str, options)], capture_output=True, timeout=seconds + STARTING_SECONDS, check=False
    )
    said = ended.stderr.decode(errors="replace")
    if ended.returncode not in ENDS:
        raise RuntimeError(f"the engine ended with {ended.returncode}: {said[-2_000:]}")
    return said


def _crashes(place: Path) -> Iterable[Path]:
    return (each for each in (place / "crashes").iterdir() if each.suffix != ".txt")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="of all doors together")
    parser.add_argument("--door", action="append", choices=list(DOORS), help="only this one; may be given again")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    return parser.parse_args()


def _show(counts: list[Count]) -> None:
    table = Table(title=f"crashes and what they said: {FOUND}/DOOR/crashes", title_justify="left")
    for name in Count.__slots__:
        table.add_column(name, justify="left" if name == "door" else "right")
    for each in counts:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in asdict(each).values()))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
