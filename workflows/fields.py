"""Checks of context fields, shared by the shipped definitions."""

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


AUTHOR = Field("author", name, "the name of an agent or a user")
