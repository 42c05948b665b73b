"""Kinds of columns that many tables share. Their defaults are in the migrations."""

from functools import partial

from sqlalchemy import ARRAY, Boolean, Column, DateTime, Integer, Text, Uuid
from sqlalchemy.dialects.postgresql import JSONB

instance_key = partial(Column, type_=Uuid, primary_key=True)  # the key of a typed row: its instance's id
instant = partial(Column, type_=DateTime(timezone=True))  # NULL until it is known
stamped = partial(Column, type_=DateTime(timezone=True), nullable=False)
count = partial(Column, type_=Integer, nullable=False)
flag = partial(Column, type_=Boolean, nullable=False)
document = partial(Column, type_=JSONB, nullable=False)  # a JSON object
ids = partial(Column, type_=ARRAY(Uuid), nullable=False)  # of instances
words = partial(Column, type_=ARRAY(Text), nullable=False)
