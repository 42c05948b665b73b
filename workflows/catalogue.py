"""Every definition there is: the shipped ones and those a user's modules add. One line here for each."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from types import MappingProxyType

from workflows.check import check
from workflows.definition import Definition
from workflows.delivery.approval import APPROVAL
from workflows.delivery.pr_review import PR_REVIEW
from workflows.delivery.sprint import SPRINT
from workflows.delivery.story import STORY
from workflows.errors import InvalidDefinition, UnknownWorkflow

WORKFLOWS: Mapping[tuple[str, str], Definition] = MappingProxyType(
    {
        ("story", "1.0.0"): STORY,
        ("sprint", "1.0.0"): SPRINT,
        ("pr_review", "1.0.0"): PR_REVIEW,
        ("approval", "1.0.0"): APPROVAL,
    }
)


class Catalogue:
    """Definitions by (type, version), all checked. Raises `InvalidDefinition` where two share a version."""

    def __init__(self, definitions: Iterable[Definition]) -> None:
        self._by_key: dict[tuple[str, str], Definition] = {}
        for definition in definitions:
            if self._by_key.setdefault((definition.type, definition.version), definition) is not definition:
                raise InvalidDefinition(f"{definition.type} {definition.version} is defined twice; raise one's version")
        self.warnings = [warning for definition in self._by_key.values() for warning in check(definition)]

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._by_key.values())

    @cached_property
    def newest(self) -> Mapping[str, Definition]:
        """Type -> the definition that new instances get."""
        ascending = sorted(self._by_key.values(), key=lambda each: tuple(map(int, each.version.split("."))))
        return {definition.type: definition for definition in ascending}

    def get(self, type_: str, version: str | None = None) -> Definition:
        """The definition of a type, the newest unless `version` says otherwise.

        Raises:
            UnknownWorkflow: naming the types (or versions) there are.
        """
        if type_ not in self.newest:
            raise UnknownWorkflow(f"no workflow type {type_!r}. There are: {', '.join(sorted(self.newest))}.")
        if version is None:
            return self.newest[type_]
        try:
            return self._by_key[type_, version]
        except KeyError:
            versions = ", ".join(each for type__, each in self._by_key if type__ == type_)
            raise UnknownWorkflow(f"no version {version!r} of {type_!r}. There are: {versions}.") from None


@cache
def catalogue(modules: tuple[str, ...] = ()) -> Catalogue:
    """The shipped definitions and those of `modules`, each of which has a `WORKFLOWS` dict like this one's.

    Raises:
        InvalidDefinition: a definition contradicts itself, or a module cannot be read.
    """
    definitions = list(WORKFLOWS.values())
    for name in modules:
        try:
            definitions += import_module(name).WORKFLOWS.values()
        except (ImportError, AttributeError) as error:
            raise InvalidDefinition(
                f"INTERLOCK_DEFINITIONS names {name!r}, which has no readable WORKFLOWS dict: {error}"
            ) from error
    return Catalogue(definitions)
