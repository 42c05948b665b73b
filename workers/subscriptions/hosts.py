"""Which endpoints subscriptions may name (SUBSCRIPTION-9)."""

from collections.abc import Collection
from urllib.parse import urlsplit

from interlock.workflows.errors import InterlockError
from interlock.workflows.output.urls import shown_url


class EndpointNotAllowed(InterlockError):
    """The endpoint is not on the public internet, or not https. Name its host in INTERLOCK_SUBSCRIPTION_HOSTS."""


def is_own_host(url: str, hosts: Collection[str]) -> bool:
    """Whether a URL's host, or its host and port, is among those of our own network that may be delivered to."""
    found = urlsplit(url)
    port = found.port or (443 if found.scheme == "https" else 80)
    named = {each.lower() for each in hosts}
    return bool(named & {found.hostname, f"{found.hostname}:{port}"})


def require_allowed(url: str, hosts: Collection[str]) -> None:
    """Raise `EndpointNotAllowed` if a URL is not https, and its host not among those of our own network."""
    if urlsplit(url).scheme != "https" and not is_own_host(url, hosts):
        raise EndpointNotAllowed(
            f"{shown_url(url)} is not https, so that others could read what is delivered. Only hosts of your own "
            "network may be without: name it in INTERLOCK_SUBSCRIPTION_HOSTS, as HOST or HOST:PORT"
        )
