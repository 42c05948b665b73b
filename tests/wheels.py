"""Wheels and source distributions, built and installed without a network."""

import subprocess
import sys
from pathlib import Path


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
