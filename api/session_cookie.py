"""The cookie of a session of the console, and what a browser says of where a request comes from (CONSOLE-3, 4)."""

from starlette.requests import HTTPConnection
from starlette.responses import Response

SAFE = ("GET", "HEAD")


def name(request: HTTPConnection) -> str:
    """The cookie's name: cookies know no ports, and several installations may be on one machine."""
    return f"interlock-{request.url.port or request.url.scheme}"


def of(request: HTTPConnection) -> str:
    """The session that a request presents; "" if none."""
    return request.cookies.get(name(request), "")


def own_origin(request: HTTPConnection) -> bool:
    """Whether a page of this server sends this, as its browser says: never a page of another origin."""
    headers = request.headers
    if site := headers.get("sec-fetch-site"):
        return site == "same-origin"
    _scheme, found, host = headers.get("origin", "").partition("://")
    return bool(found) and host == headers.get("host")


def may_read(request: HTTPConnection) -> bool:
    """Whether the API answers the cookie of this request: only one of our own pages, and only one that reads."""
    return request.scope["method"] in SAFE and request.headers.get("sec-fetch-site", "same-origin") == "same-origin"


def give(request: HTTPConnection, response: Response, session: str, seconds: int) -> None:
    """Give a browser its session. The cookie is `Secure` where the browser came over TLS, through a proxy too."""
    secure = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:")
    response.set_cookie(name(request), session, max_age=seconds, secure=secure, httponly=True, samesite="strict")


def take(request: HTTPConnection, response: Response) -> None:
    """Have a browser forget its session."""
    response.delete_cookie(name(request), httponly=True, samesite="strict")
