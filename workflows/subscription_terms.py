"""The terms of a subscription: where it delivers to, and which events (SUBSCRIPTION-2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from interlock.workflows.effects import SECRET, URL, Endpoint
from interlock.workflows.errors import BadInput
from interlock.workflows.input.names import is_name

LONGEST_URL = 2_000
MOST_NAMES = 100  # in each of the lists
NAMED = ("types", "states", "triggers")


@dataclass(frozen=True, slots=True)
class SubscriptionTerms:
    """What a subscription delivers, and where. An empty list leaves nothing out.

    Attributes:
        endpoint: where it delivers to, and the references to the secrets that sign it.
        types: workflow types.
        states: that an event enters.
        triggers: that made the move.
        every_project: events of all projects; otherwise of the subscription's own.
    """

    endpoint: Endpoint
    types: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    triggers: frozenset[str] = frozenset()
    every_project: bool = False

    def want(self, event: Mapping[str, Any], project: str) -> bool:
        """Whether an event (a row of `event_rows.sql`) is delivered to a subscription of this project."""
        return (
            (self.every_project or event["project"] == project)
            and (not self.types or event["workflow_type"] in self.types)
            and (not self.states or event["to_state"] in self.states)
            and (not self.triggers or event["trigger"] in self.triggers)
        )


def is_url(value: object) -> bool:
    """Whether it is an `http://` or `https://` address with a host, and without a user or password."""
    if not isinstance(value, str) or len(value) > LONGEST_URL or not value.isascii() or not URL.fullmatch(value):
        return False
    try:
        found = urlsplit(value)
        return bool(found.hostname) and found.port != 0
    except ValueError:
        return False


def are_secrets(value: object) -> bool:
    """Whether it is a list of references to secrets, at least one."""
    return (
        isinstance(value, list)
        and 0 < len(value) <= MOST_NAMES
        and all(isinstance(each, str) and len(each) <= LONGEST_URL and SECRET.fullmatch(each) for each in value)
    )


def are_names(value: object) -> bool:
    """Whether it is a list of names, each once."""
    return (
        isinstance(value, list)
        and len(value) <= MOST_NAMES
        and all(map(is_name, value))
        and len(value) == len(set(value))
    )


def read_terms(context: Mapping[str, Any]) -> SubscriptionTerms:
    """The terms in a subscription's context. Raises `BadInput` if they cannot be read: raw SQL wrote them."""
    lists = {name: context.get(name, []) for name in NAMED}
    every = context.get("every_project", False)
    if not is_url(context.get("url")) or not are_secrets(context.get("secrets")):
        raise BadInput("the terms name no endpoint and secret that can be used")
    if not all(map(are_names, lists.values())) or not isinstance(every, bool):
        raise BadInput("the terms do not say which events it delivers")
    endpoint = Endpoint(context["url"], tuple(context["secrets"]))
    return SubscriptionTerms(endpoint, **{name: frozenset(value) for name, value in lists.items()}, every_project=every)
