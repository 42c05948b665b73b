"""Names of branches and refs, made from the names of runs and workstreams."""

import hashlib
import re

SAFE = "A-Za-z0-9_-"
UNSAFE = re.compile(f"[^{SAFE}]+")
LONGEST = 60
OURS = "interlock/"
PLAIN = re.compile(f"{OURS}[{SAFE}]+/[{SAFE}]+")  # what `branch_name` makes; git accepts all of it


def branch_name(run: str, workstream: str) -> str:
    """The branch of a workstream: `interlock/<run>/<workstream>`, both made safe."""
    return f"{OURS}{safe(run)}/{safe(workstream)}"


def safe(name: str) -> str:
    """The name itself if git, a shell and every file system accept it; else a similar name with part of its hash.

    Two different names, even if they differ only in case, never give the same result.
    """
    kept = UNSAFE.sub("-", name).strip("-")[:LONGEST]
    if kept == name and kept == kept.lower():
        return kept
    return f"{kept.lower() or 'x'}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:8]}"
