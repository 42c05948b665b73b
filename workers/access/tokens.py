"""Finds out who a bearer token speaks for, and what it may (docs/spec/token.md). Only its SHA-256 is stored."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_urlsafe
from uuid import UUID

from interlock.db.core import api_tokens
from interlock.workers.runtime import Runtime
from interlock.workflows.machines.governance.api_token import Role

# By which scanners for secrets know one, and by which none is taken for another: what programs present, what `interlock
# open` prints, and the console's cookie (docs/spec/console.md).
BEARER, LINK, SESSION = "ilk_", "ill_", "ils_"
BYTES = 32
FORM = re.compile(r"il[kls]_[A-Za-z0-9_-]{43}")
NONE = BEARER + "-" * 43  # looked up in place of what cannot be a token, so that it costs the same


@dataclass(frozen=True, slots=True)
class Principal:
    """Who acts with a token.

    Attributes:
        token_id: the token's instance.
        name: in whose name it acts.
        role: what it may at most.
        projects: where; None: in all.
    """

    token_id: UUID
    name: str
    role: Role
    projects: frozenset[str] | None

    def may_read(self, project: str) -> bool:
        """Whether it may read what is of a project."""
        return self.projects is None or project in self.projects

    def may_write(self, project: str) -> bool:
        """Whether it may create instances and fire triggers in a project, as far as their definitions allow."""
        return self.role != "read-only" and self.may_read(project)

    def may_operate(self, project: str) -> bool:
        """Whether it may do in a project what operators do, as long as its name has an operator's grant (TOKEN-3)."""
        return self.role in ("operator", "admin") and self.may_read(project)

    def proof(self, of_right: str | None = None) -> str:
        """What its requests say for proof, behind what else proves their right; PostgreSQL judges it (AUTHORITY-16)."""
        return f"{of_right or ''} token:{self.token_id}".lstrip()


def make(prefix: str = BEARER) -> str:
    """A new token: `ilk_`, or another prefix, and 256 random bits."""
    return prefix + token_urlsafe(BYTES)


def digest_of(token: str) -> bytes:
    """The SHA-256 of a token, 32 bytes: all that is stored of it."""
    return sha256(token.encode()).digest()


def find(runtime: Runtime, presented: str, prefix: str = BEARER) -> Principal | None:
    """Who acts with a token that somebody presents, and note its use, at most once a minute.

    Args:
        runtime: whose database. With an `AsyncRuntime`, call it in a greenlet: `await greenlet_spawn(find, …)`.
        presented: it may be anything.
        prefix: what it must begin with: `BEARER`, `LINK` or `SESSION`.

    Returns:
        None if it is no token, or one that is revoked or expired: all cost one look-up, and nothing says which it was.
    """
    return find_each(runtime, [(presented, prefix)])[0]


def find_each(runtime: Runtime, presented: Sequence[tuple[str, str]]) -> list[Principal | None]:
    """The same for several, each with its prefix, by one look-up: the answers in the same order."""
    digests = [digest_of(token if _is_one(token, prefix) else NONE) for token, prefix in presented]
    found = api_tokens.find(runtime.statements, set(digests))
    if unnoted := [each["token_id"] for each in found.values() if each["unnoted"]]:
        api_tokens.note_use(runtime.statements, unnoted)
    principals = {digest: _principal(each) for digest, each in found.items()}
    return [principals.get(digest) for digest in digests]


def _is_one(presented: str, prefix: str) -> bool:
    return presented.startswith(prefix) and FORM.fullmatch(presented) is not None


def _principal(found: api_tokens.FoundToken) -> Principal:
    projects = None if found["projects"] is None else frozenset(found["projects"])
    return Principal(found["token_id"], found["name"], found["role"], projects)


def in_force(runtime: Runtime, token_ids: Collection[UUID]) -> set[UUID]:
    """Those of some tokens that are in force now, neither revoked nor expired."""
    return api_tokens.in_force(runtime.statements, token_ids)
