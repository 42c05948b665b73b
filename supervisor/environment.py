"""The environment and working directory of the parts and of a detached supervisor.

Modules in the directory where `interlock up` is called must not be imported: `-P` and PYTHONSAFEPATH keep that
directory out of the module search path. Celery adds the working directory again (and Flower runs a settings file from
it), so the parts run in `/`. Users with modules of their own put their directory into PYTHONPATH.
"""

import os
import sys
from pathlib import Path

from interlock.db.schema import SCHEMA, VARIABLE
from interlock.workers.settings import Settings

PLAIN_NAMES = ("DATABASE_URL", "BROKER_URL")
PYTHON = (sys.executable, "-P")
DIRECTORY = Path("/")
UMASK = 0o077  # files of the parts are accessible to their user only


def environment(settings: Settings) -> dict[str, str]:
    """This process's environment, with its settings replaced by `settings`; all paths are absolute."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith("INTERLOCK_") and name.upper() not in PLAIN_NAMES
    }
    chosen = {f"INTERLOCK_{name.upper()}": _text(value) for name, value in settings if value is not None}
    if "PYTHONPATH" in inherited:  # an empty entry would mean a part's working directory
        entries = filter(None, inherited["PYTHONPATH"].split(os.pathsep))
        inherited["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in entries)
    own = {"INTERLOCK_HOME": str(settings.home.resolve()), VARIABLE: SCHEMA, "PYTHONSAFEPATH": "1"}
    return {**inherited, **chosen, **own}


def _text(value: object) -> str:
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or ","  # an empty variable would mean the default
    return str(value)
