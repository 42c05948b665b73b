"""The libraries of others that pages use, in `static/vendor`, unchanged; each with its version and licence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vendored:
    """A library.

    Attributes:
        name, version, licence, home: as its package says.
        why: what pages use it for.
        text: the file with its licence's text.
    """

    name: str
    version: str
    licence: str
    home: str
    why: str
    text: str


VENDORED = (
    Vendored(
        "htmx", "4.0.1", "BSD-0-Clause", "https://htmx.org",
        "sends forms and replaces parts of pages", "vendor/htmx.LICENSE.txt",
    ),
    Vendored(
        "uPlot", "1.6.32", "MIT", "https://github.com/leeoniya/uPlot",
        "draws plots", "vendor/uPlot.LICENSE.txt",
    ),
    Vendored(
        "dagre", "3.1.3", "MIT", "https://github.com/dagrejs/dagre",
        "lays out state diagrams and the tasks of runs", "vendor/dagre.LICENSE.txt",
    ),
)  # fmt: skip
