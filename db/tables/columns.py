"""Kinds of columns that many tables share."""

from typing import Any

from sqlalchemy import ARRAY, Boolean, Column, DateTime, ForeignKey, Integer, Text, Uuid, func, text
from sqlalchemy.dialects.postgresql import JSONB


def instance_key(name: str) -> Column[Any]:
    """The key of a typed row: its instance's id."""
    return Column(name, Uuid, ForeignKey("workflow_instances.id"), primary_key=True)


def instant(name: str) -> Column[Any]:
    """A time; NULL until it is known."""
    return Column(name, DateTime(timezone=True))


def stamped(name: str) -> Column[Any]:
    """A time; default: now."""
    return Column(name, DateTime(timezone=True), nullable=False, server_default=func.now())


def count(name: str, first: int = 0) -> Column[Any]:
    """A whole number; default: `first`."""
    return Column(name, Integer, nullable=False, server_default=text(str(first)))


def flag(name: str) -> Column[Any]:
    """A boolean; default: false."""
    return Column(name, Boolean, nullable=False, server_default=text("false"))


def document(name: str) -> Column[Any]:
    """A JSON object; default: empty."""
    return Column(name, JSONB, nullable=False, server_default=text("'{}'::jsonb"))


def ids(name: str) -> Column[Any]:
    """A list of instance ids; default: empty."""
    return Column(name, ARRAY(Uuid), nullable=False, server_default=text("'{}'::uuid[]"))


def words(name: str) -> Column[Any]:
    """A list of texts; default: empty."""
    return Column(name, ARRAY(Text), nullable=False, server_default=text("'{}'::text[]"))
