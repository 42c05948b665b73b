"""Advisory locks are told apart by their numbers alone: two purposes with one number would wait for each other."""

import re
from collections import Counter
from pathlib import Path

DB = Path(__file__).parents[2] / "db"


def test_no_two_advisory_locks_share_a_number() -> None:
    sources = "\n".join(file.read_text() for file in DB.rglob("*.py"))
    numbers = [int(each, 16) for each in re.findall(r"_LOCK = lock_number\(0x([0-9A-F_]+)\)", sources)]
    assert len(numbers) > 5
    assert [number for number, uses in Counter(numbers).items() if uses > 1] == []
