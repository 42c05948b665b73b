"""Sessions of the console: a link that is used once becomes a session; both are API tokens (docs/spec/console.md)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from interlock.db.core import api_tokens
from interlock.db.core.request_rows import Right
from interlock.workers.access import tokens
from interlock.workers.access.tokens import Principal
from interlock.workers.overrides.at_once import at_once
from interlock.workers.overrides.tokens import IssuedToken, TokenTerms, issue_within
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workflows.input.arguments import door

LINK_LIFE = timedelta(minutes=5)
SESSION_LIFE = timedelta(hours=12)


@door
def make_link(runtime: Runtime, terms: TokenTerms, order: OverrideOrder) -> IssuedToken:
    """Issue the token of a link, which opens one session within five minutes.

    Args:
        runtime: whose database.
        terms: in whose name, as what and where the session acts; `expires_at` is not used.
        order: the operator, and why.

    Returns:
        The token, for the link's fragment, and its row.

    Raises:
        NotAnOperator, CannotMove, StillDeciding: as `tokens.issue`.
    """
    with at_once(runtime) as acting:
        return issue_within(acting, replace(terms, expires_at=_in(LINK_LIFE)), order, tokens.LINK)


@door
def open_session(runtime: Runtime, link: str) -> IssuedToken | None:
    """Use a link: its token is revoked, and in the same commit a session is issued by whoever issued the link.

    Args:
        runtime: whose database.
        link: what was presented; it may be anything.

    Returns:
        The session's token and its row; None if the link was used, has expired or is none.

    Raises:
        NotAnOperator: who issued the link is an operator no longer.
    """
    found = tokens.find(runtime, link, tokens.LINK)
    if found is None:
        return None
    with at_once(runtime) as acting:
        rows = api_tokens.listed(acting.connection, token_id=found.token_id)
        if not rows:  # somebody else has just used it
            return None
        projects = None if rows[0]["projects"] is None else tuple(rows[0]["projects"])
        terms = TokenTerms(found.name, found.role, projects, _in(SESSION_LIFE))
        order = OverrideOrder(rows[0]["issued_by"], f"a session of the console, by the link {rows[0]['entity_id']}")
        session = issue_within(acting, terms, order, tokens.SESSION)
        used = f"used: it opened the session {session.row['entity_id']}"
        acting.move(found.token_id, "revoke", by=order.by, reason=used, right=order.right)
        return session


@door
def end_session(runtime: Runtime, principal: Principal) -> None:
    """Sign out: revoke a session's token, with its own right; of a read-only one, with that of whoever let it in.

    A session that has ended is left so.

    Raises:
        NotYours: who let in a read-only session is no operator any more; it then ends by itself.
    """
    why = f"{principal.name} signed out of the console"
    with at_once(runtime) as acting:
        for row in api_tokens.listed(acting.connection, token_id=principal.token_id):
            let_in, own = OverrideOrder(row["issued_by"], why), OverrideOrder(principal.name, why, principal=principal)
            by, right = (
                (own.by, Right("holder", own.proof)) if principal.role != "read-only" else (let_in.by, let_in.right)
            )
            acting.move(principal.token_id, "revoke", by=by, reason=why, right=right)


def _in(life: timedelta) -> datetime:
    return datetime.now(UTC) + life
