"""Scalars by YAML 1.2's core schema, with the written text preserved.

PyYAML follows YAML 1.1: `on` and `no` become booleans, `12:30` becomes 750, `1.10` becomes 1.1. Here an unquoted scalar
stays text, and the type of its field decides how it is parsed: `command: [sleep, 1.10]` and `command: [true]` work as
written. Only free-form data are resolved, by YAML 1.2, section 10.3.2.
"""

import math
import re

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
BOOLEANS = {**dict.fromkeys(("true", "True", "TRUE"), True), **dict.fromkeys(("false", "False", "FALSE"), False)}
INTEGER = re.compile(r"[-+]?[0-9]+")
BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
LONGEST_NUMBER = 300  # Python refuses integers of thousands of digits, which no plan needs


class Plain(str):
    """An unquoted scalar, as written."""

    __slots__ = ()

    def resolved(self) -> bool | int | float | str:
        """The value by YAML 1.2. Numbers that JSON cannot represent (infinities, `.nan`) stay text."""
        if self in BOOLEANS:
            return BOOLEANS[self]
        if len(self) <= LONGEST_NUMBER:
            if INTEGER.fullmatch(self):
                return int(self)
            if BASED.fullmatch(self):
                return int(self, 0)
            if FLOAT.fullmatch(self) and math.isfinite(number := float(self)):
                return number
        return str(self)


def unquoted(text: str) -> Plain | None:
    """An unquoted scalar of the file: None for null, otherwise text for the field to parse."""
    return None if text in NULLS else Plain(text)


def data(value: object) -> object:
    """Free-form data with all unquoted scalars resolved, nested ones too."""
    if isinstance(value, Plain):
        return value.resolved()
    if isinstance(value, dict):
        return {str(key): data(each) for key, each in value.items()}
    if isinstance(value, list):
        return [data(each) for each in value]
    return value
