"""What the shipped definitions expect of their contexts."""

from workflows.definition import Field


def name(value: object) -> bool:
    """A non-empty string."""
    return isinstance(value, str) and value != ""


def names(value: object) -> bool:
    """A list of names; an empty one names nobody in particular."""
    return isinstance(value, list) and all(name(each) for each in value)


AUTHOR = Field("author", name, "the name of an agent or a user")
