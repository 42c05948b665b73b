"""The effect `notice`: notifies people through any service that apprise supports (webhooks, chat, mail)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from interlock.db.core.effects import ClaimedEffect
from interlock.workflows.errors import InterlockError
from interlock.workflows.output.escaping import shown, shown_lines
from interlock.workflows.output.suggestions import offered
from interlock.workflows.output.urls import shown_url

if TYPE_CHECKING:  # effects are registered where the runtime is used, not where it is made
    from interlock.workers.runtime import Runtime

WEBHOOKS = ("json://", "jsons://", "form://", "forms://", "xml://", "xmls://")


class NoticeNotSent(InterlockError):
    """A target did not take the notice. Look at INTERLOCK_NOTIFY_URLS and at the target's own log; it is sent again."""


def send(runtime: "Runtime", effect: ClaimedEffect) -> dict[str, Any]:
    """Send one notice to every URL of INTERLOCK_NOTIFY_URLS.

    Webhooks get the headers `Interlock-Effect` and `Interlock-Token`. The same effect id twice is the same notice; a
    lower token comes from a worker that has lost its lease.

    Returns:
        How many targets took it; 0 if none is configured.

    Raises:
        NoticeNotSent: a target refused or could not be reached.
    """
    targets = runtime.settings.notify_urls
    payload = effect["payload"]
    title = f"{payload['type']} {payload['entity_id']}: {payload['state']}"
    if targets:
        deliver([_with_token(url, effect) for url in targets], title=title, body=_body(effect, payload))
    return {"sent": len(targets)}


def deliver(urls: Iterable[str], *, title: str, body: str) -> None:
    """Send a message to every target.

    Raises:
        NoticeNotSent: a target refused or could not be reached. Targets before it have got the message.
    """
    from apprise import Apprise, NotifyFormat  # noqa: PLC0415 - it reads in a hundred services, and most processes tell nobody

    for url in urls:
        notifier = Apprise()
        if not notifier.add(url):
            raise NoticeNotSent(f"INTERLOCK_NOTIFY_URLS: {shown_url(url)} is not a URL that apprise supports")
        # Declared as plain text, so that apprise escapes whatever a service's own format would read as markup.
        if not notifier.notify(title=shown(title), body=shown_lines(body), body_format=NotifyFormat.TEXT):
            raise NoticeNotSent(f"{shown_url(url)} did not accept the notice")


def _with_token(url: str, effect: ClaimedEffect) -> str:
    if not url.startswith(WEBHOOKS):
        return url
    joint = "&" if "?" in url else "?"
    return f"{url}{joint}+Interlock-Effect={effect['id']}&+Interlock-Token={effect['token']}"


def _body(effect: ClaimedEffect, payload: dict[str, Any]) -> str:
    if "message" in payload:
        return str(payload["message"])
    context = payload["context"]
    if payload["type"] == "approval" and context.keys() >= {"requested_by", "trigger", "subject"}:  # not made by hand
        decide = offered("fire", effect["workflow_id"], "approve", by="YOU")
        asks = f"{context['requested_by']} asks to {context['trigger']} {context['subject']}"
        return f"{asks}. Decide with: {decide} (or reject)"
    if payload["type"] == "regression" and payload["state"] == "proposed":
        decide = offered("regression", "approve", effect["workflow_id"], reason="WHY")
        return f"gate {context['gate']} fails since a patch landed. Roll that back with: {decide} (or reject)"
    if payload["type"] == "brake":
        release = offered("brake", "release", payload["entity_id"], reason="WHY")
        return f"{context['reason']}. What it asks for is held until an operator releases it: {release}"
    return f"{payload['trigger']} by {payload['by']}"
