"""Wheels and source distributions, built and installed without a network; what is installed, run."""

import json
import subprocess
import sys
from pathlib import Path

# A program that runs others, and commands, one after another: to start and import Interlock takes each a second.
SEVERAL = """
import json, sys

for step in json.loads(sys.argv[1]):
    code = 0
    if isinstance(step, str):
        exec(step, {})
    else:
        from interlock.cli.main import run
        sys.argv = ["interlock", *step]
        code = run()
    print(f"\\0{code}\\0", end="", flush=True)
"""


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


def in_order(*steps: str) -> str:
    """The argument of `SEVERAL`: programs, and, after `$`, command lines (words without blanks)."""
    return json.dumps([step.split()[1:] if step.startswith("$ ") else step for step in steps])


def answers(output: str) -> list[tuple[str, str]]:
    """What each of `SEVERAL` printed, and its exit code."""
    said = output.split("\0")
    return list(zip(said[0::2], said[1::2], strict=False))
