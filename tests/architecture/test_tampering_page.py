"""The page on audits lists every tampering that the tests try."""

import re
from pathlib import Path

from tests.integration import test_tampering_beside_history as beside
from tests.integration import test_tampering_table as history

AUDIT = Path(__file__).parents[2] / "docs" / "audit.md"


def test_there_are_forty_and_the_page_lists_each() -> None:
    table = (*history.TABLE, *beside.TABLE)
    assert len(table) >= 40
    (page,) = re.findall(r"(?s)\| done to history \|\n\|---\|\n(.*?)\n\n", AUDIT.read_text())
    expected = [f"| {each.what} |" for each in table]
    assert page.splitlines() == expected, "\n".join(expected)
