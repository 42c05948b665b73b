"""Settings: environment variables that a person or a platform sets."""

import os
from pathlib import Path
from unittest import mock

from hypothesis import strategies as st

from interlock.supervisor.environment import PLAIN_NAMES, environment
from interlock.workers.settings import Settings, settings
from tests.fuzz.door import SEPARATOR, Door, Ground, Target, parts
from tests.fuzz.shapes import TEXTS

NAMES = (*PLAIN_NAMES, *(f"INTERLOCK_{name.upper()}" for name in Settings.model_fields))
URLS = (
    "postgresql://u:p@h/d",
    "postgres://h",
    "postgresql+psycopg://h:x/d",
    "postgresql://[::1",
    "redis://:p@h:6379/0",
    "redis://h:port/x",
    "unix:///tmp/x",
    "amqp://g:g@h//",
    "rediss://",
)
VALUES = (
    "",
    "0",
    "-1",
    "1",
    "0.5",
    "nan",
    "inf",
    "1e400",
    "true",
    "no",
    "a,b , ,c",
    "[]",
    '["a"]',
    "{}",
    ".",
    "/",
    "~",
)
MANY = 60


def _opened(ground: Ground) -> Target:
    def read(data: bytes) -> None:
        given = _environment(data)
        with mock.patch.dict(os.environ, given):
            settings.cache_clear()
            try:
                chosen = settings()
            finally:
                settings.cache_clear()
        _derived(chosen)
        handed_on = {name: value for name, value in environment(chosen).items() if name.startswith("INTERLOCK_")}
        with mock.patch.dict(os.environ, handed_on):
            again = Settings()
        assert _absolute(again) == _absolute(chosen), "parts get other settings than we have"

    return read


def _absolute(chosen: Settings) -> dict[str, object]:
    """Settings as parts get them, which may work elsewhere."""
    return {name: value.absolute() if isinstance(value, Path) else value for name, value in chosen if name != "home"}


def _environment(data: bytes) -> dict[str, str]:
    words = parts(data, min(data.count(SEPARATOR) + 1, MANY))
    pairs = (each.partition("=")[::2] for each in words)
    return {name: value for name, value in pairs if name in NAMES and "\0" not in value}


def _derived(chosen: Settings) -> None:
    for name in ("worktrees", "output", "archive", "state", "signing", "audit"):
        getattr(chosen, f"{name}_directory")
    if chosen.database_url:
        chosen.resolved_database_url()
    if chosen.broker_url:
        chosen.resolved_broker_url()
        chosen.resolved_redis_url()


VALUE = st.sampled_from((*URLS, *VALUES, *TEXTS)) | st.text(max_size=20) | st.floats().map(str) | st.integers().map(str)
PAIR = st.builds("{}={}".format, st.sampled_from(NAMES), VALUE)

CONFIGURATION = Door(
    "configuration",
    "In any environment, settings are read as all processes read them, or one line names the faulty variable.",
    _opened,
    st.lists(PAIR, max_size=5).map(lambda each: SEPARATOR.join(one.encode(errors="surrogatepass") for one in each)),
    tuple(SEPARATOR.join(f"{name}={value}".encode() for name in NAMES) for value in ("1", "a,b", URLS[0], URLS[4])),
)
