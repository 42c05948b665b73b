"""What the Tab key offers for an argument: instances by name, legal triggers, types, limits (`interlock completion`).

A database that does not answer offers nothing, silently: what is printed here ends up in somebody's command line.
Shells insert it as it is, and zsh evaluates typer's answer: only words without a meaning to a shell are offered.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path

import typer

from interlock.db.connection import single_statements
from interlock.db.core import instances, limits
from interlock.workers.client.client import Client
from interlock.workers.settings import Settings

Offer = tuple[str, str]  # a word, and what it is
Completer = Callable[[typer.Context, str], list[Offer]]
# No quotes, blanks, substitutions or patterns; nor an option, a home directory or a command as zsh's `=ls` gives it.
HARMLESS = re.compile(r"[A-Za-z0-9._/@:+,][A-Za-z0-9._/@:+=,~-]*")
NOT_IN_HELP = re.compile(r"[^A-Za-z0-9 .,;()_/-]+")


def _quietly(find: Callable[[Client, typer.Context, str], Iterator[Offer]]) -> Completer:
    @wraps(find)
    def offers(ctx: typer.Context, incomplete: str) -> list[Offer]:
        with suppress(Exception), Client() as client:
            _require_own_home(client.runtime.settings)
            found = [*find(client, ctx, incomplete)]
            return [(word, NOT_IN_HELP.sub(" ", what)) for word, what in found if HARMLESS.fullmatch(word)]
        return []

    offers.__annotations__ = {"ctx": typer.Context, "incomplete": str}  # what typer passes them by
    del offers.__wrapped__
    return offers


def _require_own_home(settings: Settings) -> None:
    """Raise `PermissionError` if the home that says where the servers are is, or can become, another user's.

    Without INTERLOCK_HOME it is `.interlock` of whatever folder somebody presses Tab in.
    """
    if settings.database_url is None and not _is_own(settings.home):
        raise PermissionError(f"{settings.home} is another user's, or others can write to it")


def _is_own(directory: Path) -> bool:
    found = directory.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def named(*types: str) -> Completer:
    """Completes the name of an instance: of these types, or of any. In the form TYPE/NAME once that is begun."""

    @_quietly
    def find(client: Client, _: typer.Context, incomplete: str) -> Iterator[Offer]:
        kind, slash, rest = incomplete.partition("/")
        project = client.runtime.settings.project
        with single_statements(client.runtime.database) as connection:
            rows = [*instances.beginning(connection, incomplete, project=project, types=types)]
            if slash:
                rows += instances.beginning(connection, rest, project=project, types=[kind])
        for row in rows:
            whole = row["entity_id"].startswith(incomplete)
            name = row["entity_id"] if whole else f"{row['workflow_type']}/{row['entity_id']}"
            yield name, f"{row['workflow_type']} in {row['current_state']}"

    return find


@_quietly
def triggers(client: Client, ctx: typer.Context, incomplete: str) -> Iterator[Offer]:
    """Completes a trigger: those that are legal now for the instance that the command names before it."""
    shown = client.show(ctx.params["ref"])
    for name in shown["legal"]:
        if name.startswith(incomplete):
            yield name, f"{shown['workflow_type']} in {shown['current_state']}"


@_quietly
def types(client: Client, _: typer.Context, incomplete: str) -> Iterator[Offer]:
    """Completes a workflow type."""
    for type_, definition in sorted(client.runtime.catalogue.newest.items()):
        if type_.startswith(incomplete):
            yield type_, definition.summary


@_quietly
def limited(client: Client, ctx: typer.Context, incomplete: str) -> Iterator[Offer]:
    """Completes the name of a limit in force, of the kind that the command names before it."""
    project, kind = client.runtime.settings.project, str(ctx.params["kind"])
    with single_statements(client.runtime.database) as connection:
        rows = limits.listed(connection, project=project, kind=kind)
    for row in rows:
        if row["name"].startswith(incomplete):
            yield row["name"], f"limit on a {kind}"


def one_of(words: Iterable[str]) -> Callable[[str], list[str]]:
    """Completes one of these words of ours."""

    def offers(incomplete: str) -> list[str]:
        return [each for each in words if each.startswith(incomplete)]

    return offers
