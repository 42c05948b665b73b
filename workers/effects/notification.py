"""The effect `notice`: tell people, over whatever apprise reaches (webhooks, chat, mail)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sqlalchemy import RowMapping

from workflows.errors import InterlockError

if TYPE_CHECKING:  # effects are registered where the runtime is used, not where it is made
    from workers.runtime import Runtime

WEBHOOKS = ("json://", "jsons://", "form://", "forms://", "xml://", "xmls://")


class NoticeNotSent(InterlockError):
    """A target did not take the notice. Look at INTERLOCK_NOTIFY_URLS and at the target's own log; it is sent again."""


def send(runtime: "Runtime", effect: RowMapping) -> dict[str, Any]:
    """Send one notice to every URL of INTERLOCK_NOTIFY_URLS.

    Webhooks get the headers `Interlock-Effect` and `Interlock-Token`: the same id twice is the same notice, and a
    lower token comes from a worker that has lost its lease.

    Returns:
        How many targets took it (none configured: 0).

    Raises:
        NoticeNotSent: a target refused or could not be reached.
    """
    targets = runtime.settings.notify_urls
    payload = effect["payload"]
    tell([_with_token(url, effect) for url in targets], title=_title(payload), body=_body(payload))
    return {"sent": len(targets)}


def tell(urls: Iterable[str], *, title: str, body: str) -> None:
    """Send words to every target.

    Raises:
        NoticeNotSent: a target refused or could not be reached; those before it have been told.
    """
    from apprise import Apprise  # noqa: PLC0415 - it reads in a hundred services, and most processes tell nobody

    for url in urls:
        told = Apprise()
        told.add(url)
        if not told.notify(title=title, body=body):
            raise NoticeNotSent(f"notice not taken by {url.split('?')[0]}")


def _with_token(url: str, effect: RowMapping) -> str:
    if not url.startswith(WEBHOOKS):
        return url
    joint = "&" if "?" in url else "?"
    return f"{url}{joint}+Interlock-Effect={effect['id']}&+Interlock-Token={effect['token']}"


def _title(payload: dict[str, Any]) -> str:
    return f"{payload['type']} {payload['entity_id']}: {payload['state']}"


def _body(payload: dict[str, Any]) -> str:
    if "says" in payload:
        return str(payload["says"])
    context = payload["context"]
    if payload["type"] == "approval" and "subject" in context:
        return (
            f"{context['requested_by']} asks to {context['trigger']} {context['subject']}. Decide with: "
            f"interlock fire approval/{payload['entity_id']} approve --by YOU (or reject)"
        )
    return f"{payload['trigger']} by {payload['by']}"
