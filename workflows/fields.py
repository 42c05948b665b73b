"""Checks of context fields, shared by the shipped definitions."""

import re

from interlock.workflows.definition import Field
from interlock.workflows.input.names import is_name, is_words


def name(value: object) -> bool:
    """Whether the value is a valid name (`workflows.input.names`)."""
    return is_name(value)


def words(value: object) -> bool:
    """Whether the value is a valid text of one or more lines."""
    return is_words(value)


def names(value: object) -> bool:
    """Whether the value is a list of names; it may be empty."""
    return isinstance(value, list) and all(name(each) for each in value)


def sha256(value: object) -> bool:
    """Whether the value is a SHA-256 in hexadecimal digits."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


AUTHOR = Field("author", name, "the name of an agent or a user")
# Of a worker's secret, by which it proves that it is itself (AUTHORITY-15).
SECRET = Field("secret_sha256", sha256, "the SHA-256 of the worker's secret, in 64 hexadecimal digits")
