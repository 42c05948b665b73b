"""A token with which a program acts in a name over HTTP and MCP, from its issue to its end (docs/spec/token.md).

proposed → active → revoked | expired

Its context is its terms, which never change. Of the secret itself only the SHA-256 is kept. PostgreSQL judges who may
issue which token, and each request that is made with one.
"""

from typing import Literal, get_args

from interlock.workflows.definition import Definition, Field, T
from interlock.workflows.fields import name, names, sha256
from interlock.workflows.machines.governance.operator_grant import instant
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

Role = Literal["read-only", "agent", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)  # each may do what those before it may, and more


def _some_names(value: object) -> bool:
    return bool(value) and names(value)


API_TOKEN = Definition(
    type="api_token",
    version="1.0.0",
    summary="A token with which a program acts over HTTP and MCP.",
    order=(("proposed",), ("active",), ("revoked", "expired")),
    initial="proposed",
    terminal=frozenset({"revoked", "expired"}),
    resting=frozenset({"active"}),
    transitions=(
        T("issue", "proposed", "active", by="operator", when=(reason_given,)),
        T("revoke", "active", "revoked", by=("operator", "holder"), when=(reason_given,), severity="warning"),
        T("expire", "active", "expired", by="machinery"),
    ),
    fields=(
        Field("name", name, "the name of an agent or a person", required=True),
        Field("role", lambda value: value in ROLES, ", ".join(ROLES), required=True),
        Field("projects", _some_names, "a list of projects; without it, all"),
        Field("expires_at", instant, "an instant with a time zone"),
        Field("secret_sha256", sha256, "the SHA-256 of the token, in 64 hexadecimal digits", required=True),
    ),
    required_metadata=("terms",),
)
