"""What is typed: the whole command line, in process, in a directory where nothing runs."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from unittest import mock

from hypothesis import strategies as st

from interlock.cli import main
from interlock.cli.lib.parsing import json_object, when
from interlock.workers.runtime import runtime
from interlock.workers.settings import settings
from interlock.workflows.errors import InterlockError
from tests.fuzz.door import SEPARATOR, Door, Ground, Target, joined, overwrite, parts
from tests.fuzz.shapes import TEXTS, tampered, written

PROJECT = "7a0e0f6e-0d2c-4a77-9a35-3f1b4d1f0c11"
PLAN = b"name: x\nworkstreams:\n- id: w\n  tasks:\n  - {id: t, shell: 'true'}\n"
MOST = 12
# Commands that write nothing and stop nothing where no server runs, as sound lines of words.
LINES = (
    ("create", "story", "S-1", "--project", PROJECT, "--context", '{"author": "ann"}', "--by", "ann"),
    ("fire", "S-1", "block", "--by", "ann", "--data", "{}", "--after", "2h", "--request-id", "r", "--json"),
    ("show", "story/S-1", "--json"),
    ("history", PROJECT),
    ("list", "--type", "story", "--state", "review", "--limit", "5"),
    ("definitions", "show", "story", "--version", "1.0.0"),
    ("definitions", "graph", "approval", "--json"),
    ("definitions", "diff", "story", "1.0.0", "1.0.0"),
    ("definitions", "check"),
    ("run", "check", "plan.yaml"),
    ("run", "show", "x"),
    ("runs", "--json"),
    ("patch", "show", "x"),
    ("quarantine", "list"),
    ("breaker", "list", "--json"),
    ("breaker", "show", "x", "--project", PROJECT),
    ("worker", "list"),
    ("job", "show", "x"),
    ("override", "fail-task", "x", "--by", "ann", "--reason", "r", "--dry-run"),
    ("operator", "list"),
    ("playbook", "list"),
    ("playbook", "show", "reset-breaker"),
    ("audit", "validate", "log.jsonl", "--json"),
    ("archive", "list", "--json"),
    ("dead",),
    ("redrive", "--all"),
    ("status", "--json"),
    ("--version",),
)
SAFE = frozenset(line[0] for line in LINES)
NEVER = frozenset({"lock", "export", "anchor", "key", "rebuild"})  # they write
ELSEWHERE = ("-o", "--output", "@/", "/dev", "/proc")


def _opened(ground: Ground) -> Target:
    overwrite(ground.directory / "plan.yaml", PLAN)
    overwrite(ground.directory / "log.jsonl", b"{}\n")
    overwrite(ground.directory / "data.json", b'{"a": 1}')
    nobody = {"PATH": os.environ.get("PATH", os.defpath), "INTERLOCK_HOME": str(ground.directory / "home"), "HOME": "/"}

    def typed(data: bytes) -> None:
        words = parts(data, min(data.count(SEPARATOR) + 1, MOST))
        _read(words)
        if words[0] not in SAFE or ("playbook" in words and "run" in words) or NEVER.intersection(words):
            return
        if any(word.startswith(ELSEWHERE) or "=/" in word or "\0" in word for word in words):
            return
        with mock.patch.dict(os.environ, nobody, clear=True), contextlib.chdir(ground.directory), _afresh():
            code, said = _run(words)
        assert code in (0, 1, 2), f"exit code {code}"
        assert code == 0 or said.strip(), "it failed without a word"
        assert "Traceback" not in said

    return typed


def _read(words: list[str]) -> None:
    for word in words:
        for read in (when, lambda text: json_object("--data", text)):
            if not word.startswith("@"):
                with contextlib.suppress(InterlockError):
                    read(word)  # type: ignore[operator]


def _run(words: list[str]) -> tuple[int, str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=how) for how in ("strict", "backslashreplace"))
    with (
        mock.patch.object(sys, "argv", ["interlock", *words]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(b""))),
        mock.patch(
            "interlock.workers.telemetry.logs.configure"
        ),  # a logger that was used once keeps what was configured then
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main.run()
    out.seek(0), err.seek(0)
    return code, out.read() + err.read()


@contextlib.contextmanager
def _afresh() -> Iterator[None]:
    """What a process reads once is read by each command."""
    for cached in (settings, runtime):
        cached.cache_clear()
    try:
        yield
    finally:
        for cached in (settings, runtime):
            cached.cache_clear()


WORDS = st.sampled_from(LINES).flatmap(lambda line: tampered((list(line),)))
AGES = st.builds("{}{}".format, st.integers() | st.floats(), st.sampled_from(("s", "m", "h", "d", "y", " d", "")))


def _as_words(line: object) -> bytes:
    words = line if isinstance(line, list) else [line]
    return joined(*(each.encode(errors="surrogatepass") if isinstance(each, str) else written(each) for each in words))


TYPED = Door(
    "typed",
    "Any typed command line gets an exit code and a message, never a traceback.",
    _opened,
    WORDS.map(_as_words) | st.lists(AGES | st.sampled_from(TEXTS), max_size=3).map(_as_words),
    tuple(joined(*line) for line in LINES),
    examples=36,
)
