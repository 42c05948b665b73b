"""Tables as wide as the terminal. A name or an id is never broken over lines, because somebody may type it.

Text is wrapped between words. Where not even that makes a table narrow enough, each row is a list of its values.
"""

import re
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

LONGEST_WORD = 24  # of a text of several words; longer ones in it (paths, JSON) are broken
PADDING, BORDER = 2, 1  # of a column
WORD = re.compile(r"^\s*\S+|\S+")  # blanks before the first are kept beside it


def drawn(title: Text, names: Sequence[Text], rows: Sequence[Sequence[Text]], width: int) -> RenderableType:
    """Rows as a table at most `width` wide; if no table can be, as lists of values, in which the terminal wraps.

    Args:
        title: above it.
        names: of the columns.
        rows: a cell for each column.
        width: of the terminal, in characters.
    """
    columns = [[name, *(row[place] for row in rows)] for place, name in enumerate(names)]
    widths = _widths(columns, width - len(names) * (PADDING + BORDER) - BORDER)
    if widths is None:
        return Group(title, *(line for row in rows for line in _listed(names, row)))
    table = Table(title=title, title_justify="left", header_style="bold")
    for name, each in zip(names, widths, strict=True):
        table.add_column(name, overflow="fold", width=each)
    for row in rows:
        table.add_row(*row)
    return table


def _widths(columns: Sequence[Sequence[Text]], room: int) -> list[int] | None:
    """The width of each column, which together have `room` characters; None: they need more."""
    widths = [max(map(_least, cells)) for cells in columns]
    if (left := room - sum(widths)) < 0:
        return None
    wanted = [max(_lines(cells)) - each for cells, each in zip(columns, widths, strict=True)]
    for done, place in enumerate(sorted(range(len(widths)), key=wanted.__getitem__)):
        more = min(wanted[place], left // (len(widths) - done))  # who needs little gets it, the others share the rest
        widths[place] += more
        left -= more
    return widths


def _lines(cells: Sequence[Text]) -> list[int]:
    return [max((line.cell_len for line in cell.split()), default=1) for cell in cells]


def _least(cell: Text) -> int:
    """How narrow a cell can be: what is one word is not broken, in a text of several only a long word is."""
    words = [Text(word).cell_len for word in WORD.findall(cell.plain)]
    return max(words, default=1) if len(words) < 2 else min(max(words), LONGEST_WORD)


def _listed(names: Sequence[Text], row: Sequence[Text]) -> list[Text]:
    """A row as lines `name  value`, and an empty line."""
    longest = max(name.cell_len for name in names)
    lines = [
        Text.assemble("  ", (f"{name.plain}{' ' * (longest - name.cell_len)}", "bold"), "  ", value)
        for name, value in zip(names, row, strict=True)
    ]
    return [*lines, Text()]
