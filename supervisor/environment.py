"""Settings as environment variables: how the parts, and a detached supervisor, get the same ones as we have."""

import os

from workers.settings import Settings

PLAIN_NAMES = ("DATABASE_URL", "BROKER_URL")


def environment(settings: Settings) -> dict[str, str]:
    """This process's environment with `settings` in place of those in it; the home is absolute."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith("INTERLOCK_") and name.upper() not in PLAIN_NAMES
    }
    chosen = {f"INTERLOCK_{name.upper()}": _text(value) for name, value in settings if value is not None}
    return {**inherited, **chosen, "INTERLOCK_HOME": str(settings.home.resolve())}


def _text(value: object) -> str:
    return ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
