"""Every `--dry-run` there is: it starts no program but git as we run it, and nothing is written anywhere."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from interlock.workers.circuit_breakers import calling
from interlock.workers.git.command import SETTINGS
from interlock.workers.runtime import Runtime
from interlock.workers.system.users import os_user
from tests.cli.terminal import COMMAND, FORKS, Terminal, become
from tests.cli.walking import Words, every_command, options
from tests.databases import whole
from tests.landscape import Landscape
from tests.repositories import everything as checkout
from tests.rights import operate
from tests.stuck import terminal

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
Dba = "psycopg.Connection[Any]"
STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.startfile", "pty.spawn")
WITH_DRY_RUN = [words for words, command in every_command() if "--dry-run" in options(command)]
HARDENED = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]


def heard(words: Words, env: Mapping[str, str], out: Path, err: Path, starts: Path) -> None:
    """Run a command in this process, and write down every program that it starts."""

    def hear(event: str, about: tuple[Any, ...]) -> None:
        if event in STARTS:
            with starts.open("a") as file:
                file.write(json.dumps([event, about[1] if event == "subprocess.Popen" else repr(about)], default=str))
                file.write("\n")

    sys.addaudithook(hear)
    become(COMMAND, words, env, out, err)


def started(here: Terminal, words: Words, place: Path) -> tuple[str, list[Any]]:
    """What a command said, and which programs it started."""
    out, err, starts = (place / name for name in ("out", "err", "starts"))
    starts.touch()
    process = FORKS.Process(target=heard, args=(words, here.variables, out, err, starts))
    process.start()
    process.join(90)
    assert process.exitcode is not None
    process.close()
    return out.read_text() + err.read_text(), [json.loads(line) for line in starts.read_text().splitlines()]


def traps(place: Path) -> str:
    """A PATH on which everything but git and what git calls is a trap."""
    place.mkdir()
    for name in ("make", "pytest", "true", "touch", "python", "python3", "env", "bash"):
        (place / name).write_text(f"#!/bin/sh\n: > {place}/sprung\n")
        (place / name).chmod(0o755)
    return f"{place}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.promise("O15")
def test_no_dry_run_starts_a_program_or_writes_anything(runtime: Runtime, dba: Dba, tmp_path: Path) -> None:
    trap = tmp_path / "bin" / "make"
    land = Landscape(runtime, dba, tmp_path)
    operate(runtime, os_user())
    gate = land.gate([str(trap)], env={"X": "1"})
    task = land.create("task", "demo/w/c", {"workstream_id": str(land.workstream), "command": [str(trap)]})
    bad, good = land.patch("no diff", "bad"), land.committed_patch(name="good")
    with calling(runtime, land.project, "make") as call:
        call.failed("it hangs")
    ((breaker,),) = dba.execute("SELECT breaker_id FROM circuit_breakers").fetchall()
    refs = {
        "task": ("complete-task", "fail-task", "reset-task", "unblock-task", "skip-step"),
        "workstream": ("fail-workstream", "validate-workstream", "recover-workstream", "retry"),
        "gate": ("rerun",),
        "good": ("rollback-patch", "emergency-rollback"),
        "bad": ("drop-patch", "create"),
        "breaker": ("reset-breaker",),
    }
    ids = {"task": task, "gate": gate, "workstream": land.workstream, "good": good, "bad": bad, "breaker": breaker}
    about = {name: str(ids[kind]) for kind, names in refs.items() for name in names}
    others = {
        "migrate": ("test_gate", "--from", "1.0.0", "--to", "1.1.0", "--reason", "x"),
        "handover": ("story", "--output", str(tmp_path / "handover"), "--reason", "x"),
        ("archive", "run"): ("--older-than", "0"),
    }
    here = terminal(runtime, PATH=traps(tmp_path / "bin"), INTERLOCK_TOOL_CHECKS=f"{trap}={trap}")
    before, gits = (whole(dba), checkout(land.checkout)), 0
    for number, words in enumerate(WITH_DRY_RUN):
        (place := tmp_path / str(number)).mkdir()
        said = others.get(words) or others.get(words[-1]) or (about[words[-1]], "--reason", "x", "--by", os_user())
        told, programs = started(here, (*words, *said, "--dry-run"), place)
        assert "Traceback" not in told, (words, told)
        assert "not an operator" not in told, (words, told)
        assert "No such option" not in told, (words, told)
        for event, argv in programs:
            assert event == "subprocess.Popen", (words, event, argv)
            assert argv[: 1 + len(HARDENED)] == ["git", *HARDENED], (words, argv)
            gits += 1
    assert (whole(dba), checkout(land.checkout)) == before
    assert not (tmp_path / "bin" / "sprung").exists()
    assert gits, "what is started is heard"
