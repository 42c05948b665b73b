"""Issues and revokes API tokens: an operator's events, applied at once (docs/spec/token.md)."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from interlock.db.connection import transaction
from interlock.db.core import api_tokens, instances
from interlock.db.core.api_tokens import TokenRow
from interlock.db.core.request_rows import Right
from interlock.workers.access import tokens
from interlock.workers.overrides.at_once import AtOnce, at_once
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, UnknownInstance
from interlock.workflows.input import names as naming
from interlock.workflows.input.arguments import door, record
from interlock.workflows.machines.governance.api_token import ROLES, Role

MOST_PROJECTS = 1_000
LAST_YEAR = 9_999  # of which PostgreSQL keeps no request


class NoSuchToken(UnknownInstance):
    """No token in force has that name or id. `interlock token list` shows them."""


@record
@dataclass(frozen=True, slots=True)
class TokenTerms:
    """What a token is for; it never changes.

    Attributes:
        name: in whose name it acts.
        role: `read-only`, `agent`, `operator` or `admin`.
        projects: where; None: in all.
        expires_at: when it ends; None: when it is revoked.
    """

    name: str
    role: Role
    projects: tuple[str, ...] | None
    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        naming.name("name", self.name)
        if self.role not in ROLES:
            raise BadInput(f"role must be one of {', '.join(ROLES)}")
        if self.projects is not None:
            if not isinstance(self.projects, tuple) or not 0 < len(self.projects) <= MOST_PROJECTS:
                raise BadInput(f"projects must be a tuple of 1 to {MOST_PROJECTS} names, or None for all")
            for each in self.projects:
                naming.project(each, "project")
        if self.expires_at is None:
            return
        if not isinstance(self.expires_at, datetime) or self.expires_at.tzinfo is None:
            raise BadInput("expires_at must be an instant with a time zone: give it a tzinfo, such as datetime.UTC")
        if self.expires_at.year >= LAST_YEAR:
            raise BadInput(f"expires_at {self.expires_at.isoformat()} is too far away: leave it out for no end")

    @property
    def context(self) -> dict[str, Any]:
        """The terms as an instance's context."""
        context: dict[str, Any] = {"name": self.name, "role": self.role}
        if self.projects is not None:
            context["projects"] = list(dict.fromkeys(naming.project(each) for each in self.projects))
        if self.expires_at is not None:
            context["expires_at"] = self.expires_at.astimezone(UTC).isoformat()
        return context


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token: what is known of it, and the token itself, which nobody is shown again."""

    row: TokenRow
    token: str = field(repr=False)


@door
def issue(runtime: Runtime, terms: TokenTerms, order: OverrideOrder) -> IssuedToken:
    """Issue a token.

    Args:
        runtime: whose database.
        terms: what it is for.
        order: the operator, and why.

    Returns:
        The token and its row.

    Raises:
        NotAnOperator: `order.by` is none.
        CannotMove: PostgreSQL refuses the terms: an operator's role for a name that is no operator, another role for
            one that is, or an end in the past (TOKEN-4).
        StillDeciding: see `at_once`.
    """
    with at_once(runtime) as acting:
        return issue_within(acting, terms, order)


def issue_within(acting: AtOnce, terms: TokenTerms, order: OverrideOrder, prefix: str = tokens.BEARER) -> IssuedToken:
    """Issue a token that begins with `prefix`, in a transaction that may do more. Raises as `issue`."""
    token = tokens.make(prefix)
    require_operator(acting.connection, order.by, "issue", f"api_token of {terms.name}")
    number = api_tokens.count(acting.connection) + 1
    context = terms.context | {"secret_sha256": tokens.digest_of(token).hex()}
    made = acting.born("api_token", f"{terms.name[:80]}#{number}", by=order.by, terms=context, proof=order.proof)
    acting.move(made, "issue", by=order.by, reason=order.reason, right=order.right)
    if terms.expires_at is not None:
        acting.later(made, 1, "expire", terms.expires_at)
    (row,) = api_tokens.listed(acting.connection, token_id=made)
    return IssuedToken(row, token)


@door
def revoke_tokens(runtime: Runtime, named: str, order: OverrideOrder) -> list[TokenRow]:
    """Revoke a token, or all that act in a name; from the commit on they give no right.

    Args:
        runtime: whose database.
        named: a token's id, or the name that tokens act in.
        order: the operator, and why; or who acts with a token of the same name.

    Returns:
        The revoked tokens.

    Raises:
        NotAnOperator: `order.by` is none.
        NoSuchToken: none in force is named so.
        StillDeciding: see `at_once`.
    """
    with at_once(runtime) as acting:
        ending = _in_force(acting, named)
        own = order.principal is not None and {each["name"] for each in ending} == {order.principal.name}
        if not own:
            require_operator(acting.connection, order.by, "revoke", f"api_token of {named}")
        right = Right("holder", order.proof) if own else order.right
        if order.principal is not None:  # its own comes last: what is revoked proves nothing
            presented = order.principal.token_id
            ending.sort(key=lambda each: each["token_id"] == presented)
        for each in ending:
            acting.move(each["token_id"], "revoke", by=order.by, reason=order.reason, right=right)
        return [
            row
            for each in ending
            for row in api_tokens.listed(acting.connection, token_id=each["token_id"], ended=True)
        ]


def _in_force(acting: AtOnce, named: str) -> list[TokenRow]:
    """The tokens in force with an id or a name."""
    id_ = instances.as_uuid(named)
    found = api_tokens.listed(acting.connection, name=named if id_ is None else None, token_id=id_)
    if not found:
        raise NoSuchToken(f"no token in force is {named}: `interlock token list` shows them")
    return found


@door
def list_tokens(runtime: Runtime, *, project: str | None = None, ended: bool = False) -> list[TokenRow]:
    """Tokens, oldest first: those that are good for a project, or all; with `ended`, those too that give no right."""
    with transaction(runtime.database) as connection:
        return api_tokens.listed(connection, project=project, ended=ended)
