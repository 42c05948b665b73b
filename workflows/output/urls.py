"""URLs for display, without the passwords and tokens that they may contain."""

import re
from urllib.parse import urlsplit

# Schemes whose host part is a host. In others, such as slack:// and tgram://, that part is a token.
HOSTED = frozenset(
    {"http", "https", "json", "jsons", "form", "forms", "xml", "xmls", "mailto", "mailtos", "redis", "rediss", "amqp"}
    | {"amqps", "pyamqp", "postgres", "postgresql", "postgresql+psycopg"}
)
USER_PART = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://)[^/\s]*@")


def shown_url(url: object) -> str:
    """A URL's scheme, and its host and port if the scheme has them: no user, password, path or token."""
    scheme, there, _ = str(url).partition("://")
    if not there or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return "(no URL)"
    if scheme.lower() not in HOSTED:
        return f"{scheme}://…"
    try:
        found = urlsplit(str(url))
        port = f":{found.port}" if found.port is not None else ""
        return f"{scheme}://{found.hostname or '…'}{port}"
    except ValueError:  # such as a password with an unquoted /: no part is certain to be the host
        return f"{scheme}://…"


def without_users(text: str) -> str:
    """A text in which the user and password of every URL are replaced by `…`."""
    return USER_PART.sub(r"\1…@", text) if "://" in text else text
