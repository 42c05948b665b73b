"""Wheels and source distributions, built and installed without a network; what is installed, run."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import IO

# A program that runs others, and commands, one after another: to start and import Interlock takes each a second.
SEVERAL = """
import json, os, sys

steps = os.fdopen(os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for step in map(json.loads, steps):
    code = 0
    if isinstance(step, str):
        exec(step, {})
    else:
        from interlock.cli.main import run
        sys.argv = ["interlock", *step]
        code = run()
    sys.stderr.flush()
    print(f"\\0{code}\\0", end="", flush=True)
"""
Several = Callable[..., list[tuple[str, str]]]
SEVERAL_SECONDS = 120.0  # what it is told at once takes at most, or it is killed


def built(tree: Path, kind: str, directory: Path) -> Path:
    """The file that hatchling builds of a project: its `wheel` or its `sdist`."""
    words = (sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(directory))
    subprocess.run(words, cwd=tree, check=True, capture_output=True)
    (file,) = directory.iterdir()
    return file


def installed(wheel: Path, directory: Path) -> Path:
    """Install a wheel into a directory, as pip does, without its dependencies; returns the directory."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    subprocess.run([*pip, "--target", str(directory), str(wheel)], check=True, capture_output=True)
    return directory


@contextmanager
def several(
    python: Sequence[str], env: Mapping[str, str], directory: Path, errors: int | IO[str] = subprocess.STDOUT
) -> Iterator[Several]:
    """A process that runs what it is told, for the duration of a block.

    Yields a function of programs and, after `$`, command lines (words without blanks). It returns what each printed and
    its exit code; a program that fails ends the process, which fails the test.
    """
    process = subprocess.Popen(
        [*python, "-c", SEVERAL],
        env=env,
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )

    def one(step: str) -> tuple[str, str]:
        assert process.stdin
        assert process.stdout
        print(json.dumps(step.split()[1:] if step.startswith("$ ") else step), file=process.stdin, flush=True)
        said = ""
        while said.count("\0") < 2:
            part = process.stdout.read(1)
            assert part, f"it ended, or took too long: {said}"
            said += part
        printed, code, _ = said.split("\0")
        return printed, code

    def run(*steps: str) -> list[tuple[str, str]]:
        limit = Timer(SEVERAL_SECONDS, process.kill)
        limit.start()
        try:
            return [one(step) for step in steps]
        finally:
            limit.cancel()

    with process:
        try:
            yield run
            said, _ = process.communicate()
            assert (said, process.returncode) == ("", 0)
        finally:
            process.kill()
