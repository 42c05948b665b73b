"""Run playbooks as written: the commands of a page, in a shell, in the order of the page."""

import os
import re
import subprocess
import sys
from pathlib import Path

from interlock.cli.operations.playbooks import pages
from tests.cli.terminal import Terminal

BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
PATIENCE_SECONDS = 120.0


def commands(name: str, heading: str) -> list[str]:
    """The commands under a heading of a page."""
    text = pages()[name].read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line.removeprefix("$ ") for block in BLOCK.findall(section) for line in block.splitlines()]


def type_in(terminal: Terminal, name: str, heading: str, **words: object) -> str:
    """Run a section's commands, with `words` for its placeholders; returns their output. Each must succeed."""
    said = ""
    for command in commands(name, heading):
        for word, value in words.items():
            command = re.sub(rf"\b{word}\b(?!=)", str(value), command)  # noqa: PLW2901
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            env={**terminal.variables, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        said += done.stdout + done.stderr
    return said
