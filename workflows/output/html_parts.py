"""Parts of an HTML page, as trees. The serializer escapes all texts; control characters are spelled out."""

from collections.abc import Iterable, Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement

from interlock.workflows.output.escaping import shown

Cell = object  # a text, or an Element


def section(heading: str, about: str, parts: Iterable[Element]) -> Iterator[Element]:
    """A heading and what stands below it; says so if that is nothing."""
    made = Element("h2")
    made.text = heading
    yield made
    if about:
        paragraph = Element("p")
        paragraph.text = about
        yield paragraph
    empty = True
    for part in parts:
        empty = False
        yield part
    if empty:
        nothing = Element("p")
        nothing.text = "None."
        yield nothing


def table(name: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[Element]:
    """A table that can be scrolled with the keyboard; nothing if it has no rows.

    Args:
        name: what a screen reader calls it.
        columns: their headings.
        rows: their cells; whole numbers stand to the right.
    """
    around = Element("div", {"class": "wide", "role": "region", "aria-label": shown(name), "tabindex": "0"})
    made = SubElement(around, "table")
    head = SubElement(SubElement(made, "thead"), "tr")
    for column in columns:
        SubElement(head, "th", scope="col").text = column
    body = SubElement(made, "tbody")
    for row in rows:
        line = SubElement(body, "tr")
        for value in row:
            fill(SubElement(line, "td", {"class": "n"} if type(value) is int else {}), value)
    return [around] if len(body) else []


def fill(place: Element, value: Cell) -> None:
    """Put a text or an element into another element; None leaves it empty."""
    if isinstance(value, Element):
        place.append(value)
    else:
        place.text = "" if value is None else shown(value)


def code(text: str) -> Element:
    """Text in the letters of a program, a line each."""
    made = Element("code")
    lines = text.split("\n")
    made.text = shown(lines[0])
    for each in lines[1:]:
        SubElement(made, "br").tail = shown(each)
    return made


def listed(texts: Iterable[str]) -> Element:
    """Texts as a list."""
    made = Element("ul")
    for each in texts:
        SubElement(made, "li").text = shown(each)
    return made
