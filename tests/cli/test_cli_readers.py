"""A command that is said only to read does, where PostgreSQL lets nobody write."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url
from uuid_utils.compat import uuid7

from interlock.supervisor.home import home_of
from interlock.supervisor.servers import endpoints
from interlock.workers.settings import Settings
from tests.cli.terminal import Terminal
from tests.cli.walking import READERS, Words, every_command, said

REFUSED = "read-only transaction"
EVERY = dict(every_command())


@pytest.fixture
def reader(terminal: Terminal, dba: "psycopg.Connection[tuple[Any, ...]]") -> Iterator[Terminal]:
    """The terminal with a database role whose transactions can only read."""
    role = f"reader_{uuid7().hex}"
    name = sql.Identifier(role)
    dba.execute(sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}").format(name, role))
    dba.execute(sql.SQL("ALTER ROLE {} SET default_transaction_read_only = on").format(name))
    url = make_url(endpoints.load(home_of(Settings(home=terminal.home))).superuser_url)
    url = url.set(username=role, password=role)
    try:
        yield terminal.set(DATABASE_URL=url.render_as_string(hide_password=False))
    finally:
        dba.execute(sql.SQL("DROP ROLE {}").format(name))


@pytest.fixture
def things(terminal: Terminal, story: str) -> list[Words]:
    """Commands about what there is."""
    terminal.ok("create", "circuit_breaker", story, "--context", f'{{"tool_id": "{story}"}}')
    worker = terminal.ok("supervise", "worker", "create")["subject"]["entity_id"]
    job = terminal.ok("job", "submit", "build")["subject"]["entity_id"]
    return [
        *(("show", f"story/{story}"), ("history", f"story/{story}"), ("breaker", "show", story)),
        *(("supervise", "worker", "show", worker), ("job", "show", job), ("job", "tree", job)),
    ]


def test_commands_that_only_read_need_no_right_to_write(reader: Terminal, things: list[Words], tmp_path: Path) -> None:
    assert REFUSED in reader.run("create", "story", "another").said  # so the role is held to it
    (file := tmp_path / "file").write_text("nothing: of use\n")
    about_nothing = [said(words, EVERY[words], file) for words in sorted(READERS)]
    answers = reader.each([*about_nothing, *things])
    assert [answer.words for answer in answers if REFUSED in answer.said] == []
    assert [answer.said for answer in answers[len(about_nothing) :] if answer.code] == []
