"""pydantic's messages, as users read them."""

from pydantic_core import ErrorDetails


def schema_message(fault: ErrorDetails) -> str:
    """The message of one fault, without the words that pydantic puts before those of our own validators."""
    return fault["msg"].removeprefix("Value error, ")
