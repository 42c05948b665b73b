"""One door under atheris, in a process of its own: `python -m tests.fuzz.engine DOOR DIRECTORY LIBFUZZER-OPTIONS…`.

Coverage leads: what reaches new lines of our own code is kept and changed further. Among libFuzzer's blind changes come
whole documents of Hypothesis's strategy, or no parser would be passed. A crash does not end it: each kind is kept once,
by its smallest input, in DIRECTORY/crashes.
"""

import logging
import random
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import atheris
import structlog

DRAWN = 0.02  # of the changes: documents of the strategy, which take a hundred times longer
LONGEST = 12_000

with atheris.instrument_imports(include=["interlock"]):
    from hypothesis import HealthCheck, Phase, given, settings

    from tests.fuzz.door import Door, Target, knock
    from tests.fuzz.ground import ground
    from tests.fuzz.registry import DOORS


def main() -> None:
    """Fuzz the door until libFuzzer's options say that it is enough."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # crashes tell enough
    door, directory = DOORS[sys.argv[1]], Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as temporary, ground(door, Path(temporary)) as stood_on:
        target = door.opened(stood_on)
        keeper = Crashes(target, directory / "crashes")
        options = [
            str(_program(Path(temporary))),
            f"-max_len={LONGEST}",
            "-timeout=25",
            "-rss_limit_mb=3000",
            *sys.argv[3:],
        ]
        atheris.Setup(options, keeper.attempt, custom_mutator=changes(door))
        atheris.Fuzz()


def _program(directory: Path) -> Path:
    """What libFuzzer runs where it starts itself again, to merge."""
    words = [sys.executable, "-m", "tests.fuzz.engine", *sys.argv[1:3]]
    file = directory / "engine"
    file.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    file.chmod(0o700)
    return file


class Crashes:
    """Tries inputs, and keeps the smallest of each kind of crash."""

    def __init__(self, target: Target, directory: Path) -> None:
        self._target, self._directory = target, directory
        directory.mkdir(parents=True, exist_ok=True)

    def attempt(self, data: bytes) -> None:
        """Give the input to the door."""
        try:
            knock(self._target, data)
        except Exception as crash:
            self._keep(data, crash)

    def _keep(self, data: bytes, crash: Exception) -> None:
        kind = kind_of(crash)
        file = self._directory / sha256(kind.encode()).hexdigest()[:12]
        if not file.exists() or file.stat().st_size > len(data):
            file.write_bytes(data)
            words = f"{kind}\n{str(crash)[:500]}\n{''.join(traceback.format_exception(crash)[-8:])}"
            file.with_suffix(".txt").write_text(words, errors="backslashreplace")


def kind_of(crash: Exception) -> str:
    """The error's class and the last line of ours that it went through."""
    root = str(Path(__file__).parents[2])
    frames = [each for each in traceback.extract_tb(crash.__traceback__) if each.filename.startswith(root)]
    own = [each for each in frames if "/.venv/" not in each.filename and "/tests/" not in each.filename] or frames
    place = f"{Path(own[-1].filename).relative_to(root)}:{own[-1].name}" if own else "elsewhere"
    return f"{type(crash).__name__} in {place}"


def changes(door: Door) -> Callable[[bytes, int, int], bytes]:
    """libFuzzer's changes, and now and then a document of the door's strategy."""
    drawn: list[bytes] = []

    @settings(database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(door.inputs)
    def draw(data: bytes) -> None:
        drawn.append(data)

    def change(data: bytes, longest: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < DRAWN:
            draw.hypothesis.fuzz_one_input(chance.randbytes(2_000))
            if drawn and len(found := drawn.pop()) <= longest:
                drawn.clear()
                return found
        return bytes(atheris.Mutate(data, longest))

    return change


if __name__ == "__main__":
    main()
