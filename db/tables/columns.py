"""Kinds of columns that many tables share, for one or several of a table. Their defaults are in the migrations."""

from functools import partial
from typing import Any

from sqlalchemy import ARRAY, Boolean, Column, DateTime, Double, Integer, LargeBinary, String, Text, Uuid
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine


def _columns(type_: type[TypeEngine[Any]] | TypeEngine[Any], *names: str, **terms: Any) -> list[Column[Any]]:
    return [Column(each, type_, **terms) for each in names]


optional = _columns  # of any type, NULL until they are known
names = partial(_columns, String(100), nullable=False)  # of an instance, a state, a trigger, a person
type_names = partial(_columns, String(50), nullable=False)  # of a workflow type
codes = partial(_columns, String(20), nullable=False)  # a version, or one of a few words of ours: a state, a kind
short_codes = partial(_columns, String(10), nullable=False)  # likewise
texts = partial(_columns, Text, nullable=False)
references = partial(_columns, Uuid, nullable=False)  # to an instance; as the key of a typed row: to its own
digests = partial(_columns, LargeBinary, nullable=False)
instants = partial(_columns, DateTime(timezone=True))
stamps = partial(_columns, DateTime(timezone=True), nullable=False)
seconds = partial(_columns, Double, nullable=False)
counts = partial(_columns, Integer, nullable=False)
flags = partial(_columns, Boolean, nullable=False)
documents = partial(_columns, JSONB, nullable=False)  # JSON objects
ids = partial(_columns, ARRAY(Uuid), nullable=False)  # of instances
words = partial(_columns, ARRAY(Text), nullable=False)
