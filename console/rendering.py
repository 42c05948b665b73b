"""Pages from templates. Whatever is printed is escaped twice: invisible characters are spelled out, then HTML."""

import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from interlock.console import static_files
from interlock.console.run_graph import colour
from interlock.workflows.output.escaping import json_beginning, json_text, plain, shown, shown_lines

TEMPLATES = Path(__file__).parent / "templates"
MOST_CHARACTERS = 10_000  # of one value
LINK = re.compile(r'href="/(?!static/)(?![^"]*[?;]project=)[^"]*')
SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """A page from a template.

    Args:
        request: of a visitor, unless the template needs none.
        template: its file in `templates`.
        status: of the answer.
        context: what it shows, beside `caller`, `pages` (the register), `here` (the path), `url`, `chosen` (the
            project, if one is) and `choices` (project -> the address that chooses it; "": all).
    """
    caller, chosen = (getattr(request.state, name, None) for name in ("caller", "chosen"))
    query = f"?{request.url.query}" if request.url.query else ""
    known = {
        "caller": caller,
        "pages": request.app.state.pages,
        "here": request.url.path,
        "url": f"{request.url.path}{query}",
        "chosen": chosen,
        "choices": _choices(request, chosen),
    }
    text = _templates().get_template(template).render(known | context)
    return HTMLResponse(_kept(text, chosen) if chosen else text, status)


def _choices(request: Request, chosen: str | None) -> dict[str, str]:
    """The addresses of the menu of projects: this list with its filters, or, from what is no list, the overview."""
    names = list(getattr(request.state, "projects", ()))
    if len(names) < 2 and not chosen:
        return {}
    lists = getattr(request.state, "narrows", False)
    path = request.url.path if lists else "/"
    filters = (
        [each for each in request.query_params.multi_items() if each[0] not in ("project", "before")] if lists else []
    )
    listed = [*names, *([chosen] if chosen and chosen not in names else ())]
    return {name: f"{path}?{urlencode([*filters, ('project', name)])}" for name in ["", *listed]}


def _kept(text: str, chosen: str) -> str:
    """A page whose links stay in the chosen project. No value looks like a link: its quotes are escaped."""
    said = f"project={quote(chosen, safe='')}"
    return LINK.sub(lambda found: f"{found[0]}{'&amp;' if '?' in found[0] else '?'}{said}", text)


def say(
    request: Request, title: str, words: str = "", *, kind: str = "done", status: int = 200, **more: Any
) -> HTMLResponse:
    """What became of a post, for its page's `#notice`; where there is no script, a page of its own.

    Args:
        request: the post.
        title, words: what is said.
        kind: `done`, `held` (accepted, not done yet) or `problem`.
        status: of the answer.
        more: for the template `said.html`.
    """
    template = "said.html" if by_htmx(request) else "said_page.html"
    answer = page(request, template, status=status, title=title, words=words, kind=kind, **({"legal": None} | more))
    if by_htmx(request):
        answer.headers["HX-Retarget"] = "#notice"
        answer.headers["HX-Reswap"] = "innerHTML"
        if kind != "problem":
            answer.headers["HX-Trigger"] = "changed"
    return answer


def by_htmx(request: Request) -> bool:
    """Whether a part of a page asks, not a browser's address bar."""
    return request.headers.get("hx-request") == "true"


def _printed(value: object) -> object:
    """What `{{ value }}` prints."""
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return shown(value[:MOST_CHARACTERS]) + ("…" if len(value) > MOST_CHARACTERS else "")


def lines(text: object) -> Markup:
    """A text with its line ends, for `<pre>`."""
    return Markup(escape(shown_lines(text or "")))  # noqa: S704 - escaped right here


def as_json(value: object) -> Markup:
    """A value as JSON, for an attribute."""
    return Markup(escape(json_text(value, default=plain)))  # noqa: S704 - escaped right here


def beginning(value: object, most: int = MOST_CHARACTERS) -> Markup:
    """The beginning of a value as JSON, for `<pre>`: whoever fires a trigger says how large its data is."""
    text, whole = json_beginning(value, most)
    return Markup(escape(text if whole else f"{text}\n… the rest is left out"))  # noqa: S704 - escaped right here


def span(seconds: float | None) -> str:
    """A length of time in its two largest units: `3 d 4 h`."""
    if seconds is None:
        return ""
    left, parts = int(max(seconds, 0)), list[str]()
    for size, unit in SPANS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts) or "0 s"


def when(instant: datetime | None) -> Markup:
    """An instant as how long ago it was, or will be; the exact one is its title."""
    if instant is None:
        return Markup("")
    seconds = (datetime.now(UTC) - instant).total_seconds()
    said = f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"
    exact = f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(instant.isoformat(), exact, said)


def clock(instant: datetime | None) -> Markup:
    """An instant in UTC, to compare with other logs; how long ago it was is its title."""
    if instant is None:
        return Markup("")
    ago = span((datetime.now(UTC) - instant).total_seconds())
    exact = f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}" title="{} ago">{}</time>').format(instant.isoformat(), ago, exact)


@cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printed,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "lines": lines,
        "as_json": as_json,
        "beginning": beginning,
        "span": span,
        "when": when,
        "clock": clock,
        "part_kind": colour,
    }
    made.globals["static"] = static_files.url
    return made
