"""What PostgreSQL refuses a login, however the statement was run."""

from psycopg.errors import InsufficientPrivilege

from interlock.workflows.errors import NotYours

AUTHORITY = "authority"  # the constraint that a refusal names if the trigger is not the caller's
NOT_COVERED = "by_token"  # and if the token does not allow it that something is created with


def denied(error: BaseException | None, login: str | None) -> NotYours | None:
    """The refusal, if PostgreSQL raised `error` because of who is logged in; None: for another reason.

    What an authority forbids is no such refusal: it is said by who fires (`requests.refusing`).
    """
    if not isinstance(error, InsufficientPrivilege) or error.diag.constraint_name == AUTHORITY:
        return None
    if error.diag.constraint_name == NOT_COVERED:
        return NotYours(f"{error.diag.message_primary}. `interlock token list` says what a token is for")
    return NotYours(
        f"PostgreSQL refuses that to the login {login or '?'}: {error.diag.message_primary}. `interlock doctor` says "
        "what it may do"
    )
