"""Models of rows as they are stored, made from the rows' own types: a field is declared once."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, get_type_hints
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, create_model


def row_model(row: type, *, name: str = "", without: Collection[str] = (), **more: Any) -> type[BaseModel]:
    """A model of a row.

    Args:
        row: its TypedDict or dataclass.
        name: of the model; default: the row's.
        without: fields that the API does not show.
        more: name -> type, of fields that are added, or are shown otherwise.
    """
    types = {name: kind for name, kind in get_type_hints(row).items() if name not in without} | more
    said = (row.__doc__ or "").partition("\n\n")[0]
    fields: dict[str, Any] = {each: (kind, ...) for each, kind in types.items()}
    return create_model(
        name or row.__name__.removesuffix("Row"), __doc__=said, __config__=ConfigDict(extra="forbid"), **fields
    )


def list_model(row: type[BaseModel], *, name: str = "", **more: Any) -> type[BaseModel]:
    """A model of a list of rows, as `items`; `more`: name -> type, of what stands beside them; see `row_model`."""
    fields: dict[str, Any] = {each: (kind, ...) for each, kind in ({"items": many(row)} | more).items()}
    return create_model(name or f"{row.__name__}List", __doc__=f"{row.__doc__}", **fields)


def many(row: type[BaseModel]) -> Any:
    """The type of a field that holds a list of rows."""
    return list[row]  # type: ignore[valid-type]


def page_model(row: type[BaseModel]) -> type[BaseModel]:
    """A model of a page of rows, newest first."""
    return list_model(
        row, next=Annotated[UUID | None, Field(description="`before` of the next page; null on the last")]
    )


def only(model: type[BaseModel], row: Mapping[Any, Any]) -> dict[str, Any]:
    """The fields of a row that a model has."""
    return {name: row[name] for name in model.model_fields}
