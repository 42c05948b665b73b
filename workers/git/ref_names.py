"""Names for branches and refs, made of names that people gave to runs and workstreams."""

import hashlib
import re

UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
LONGEST = 60


def branch_name(run: str, workstream: str) -> str:
    """The branch of a workstream: `interlock/<run>/<workstream>`, both made safe."""
    return f"interlock/{safe(run)}/{safe(workstream)}"


def archive_prefix(branch: str) -> str:
    """Under which ref a workstream's branch is archived."""
    return f"refs/interlock/archive/{branch.removeprefix('interlock/')}"


def safe(name: str) -> str:
    """The name where git, a shell and every file system take it as it is; else a likeness with part of its hash.

    Two names that differ, if only in case, never become one.
    """
    kept = UNSAFE.sub("-", name).strip("-")[:LONGEST]
    if kept == name and kept == kept.lower():
        return kept
    return f"{kept.lower() or 'x'}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:8]}"
