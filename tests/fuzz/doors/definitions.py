"""Definitions in files: a lock, or an export, of this installation or of another."""

from hypothesis import strategies as st

from interlock.workers.definitions import sources
from interlock.workflows.catalogue import catalogue
from interlock.workflows.versioning.export import canonical_checksum, recorded
from interlock.workflows.versioning.lock import complaints, read
from interlock.workflows.versioning.lock import written as locked
from tests.fuzz.door import Door, Ground, Target, overwrite
from tests.fuzz.shapes import documents, lines, tampered, written

FORMS = [recorded(each) for each in catalogue() if each.type in ("sprint", "approval", "task")]
LINES = [
    {"type": form["type"], "version": form["version"], "checksum": canonical_checksum(form), "form": form}
    for form in FORMS
]


def _opened(ground: Ground) -> Target:
    file, code = ground.directory / "definitions.lock", sources.of_code(catalogue())

    def compare(data: bytes) -> None:
        found = sources.of_file(overwrite(file, data))
        difference = sources.same(found, code)
        for each in difference.comparisons:
            str(each), each.verdict, each.wanted
        if not data.lstrip().startswith(b"["):
            complaints(read(data.decode(), file.name), catalogue())

    return compare


def _resealed(line: object) -> object:
    """A line whose checksum is that of what it says now."""
    if isinstance(line, dict) and isinstance(line.get("form"), dict):
        try:
            return line | {"checksum": canonical_checksum(line["form"])}
        except UnicodeEncodeError:
            return line
    return line


SEALED = st.lists(tampered(LINES).map(_resealed).map(written), max_size=3).map(lambda each: b"\n".join(each) + b"\n")

DEFINITIONS = Door(
    "definitions",
    "Any lock or export of definitions is compared, or refused with the faulty line.",
    _opened,
    SEALED | documents(FORMS) | lines(*LINES),
    (written(FORMS[:1]), b"\n".join(map(written, LINES[:1])), locked({("sprint", "1.0.0"): FORMS[0]}).encode()),
    examples=36,
)
