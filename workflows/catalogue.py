"""All definitions: the shipped ones, one line each here, and those that a user's modules add."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from types import MappingProxyType

from interlock.workflows.definition import Authority, Definition
from interlock.workflows.errors import InvalidDefinition, UnknownWorkflow
from interlock.workflows.machines.delivery.approval import APPROVAL
from interlock.workflows.machines.delivery.pr_review import PR_REVIEW
from interlock.workflows.machines.delivery.sprint import SPRINT
from interlock.workflows.machines.delivery.story import STORY
from interlock.workflows.machines.governance.deprecation import DEPRECATION
from interlock.workflows.machines.governance.narrowing import NARROWING
from interlock.workflows.machines.governance.operator_grant import OPERATOR_GRANT
from interlock.workflows.machines.governance.refusal_log import REFUSAL_LOG
from interlock.workflows.machines.legacy.step_0_1 import STEP_0_1
from interlock.workflows.machines.legacy.task_0_2 import TASK_0_2
from interlock.workflows.machines.legacy.workstream_0_1 import WORKSTREAM_0_1
from interlock.workflows.machines.legacy.workstream_0_2 import WORKSTREAM_0_2
from interlock.workflows.machines.orchestration.circuit_breaker import CIRCUIT_BREAKER
from interlock.workflows.machines.orchestration.patch_ledger import PATCH_LEDGER_1_0, PATCH_LEDGER_1_1
from interlock.workflows.machines.orchestration.run import RUN_1_0, RUN_1_1
from interlock.workflows.machines.orchestration.task import TASK_1_0, TASK_1_1
from interlock.workflows.machines.orchestration.test_gate import TEST_GATE_1_0, TEST_GATE_1_1
from interlock.workflows.machines.orchestration.uet_worker import UET_WORKER
from interlock.workflows.machines.orchestration.worker import WORKER_1_0, WORKER_1_1
from interlock.workflows.machines.orchestration.workstream import WORKSTREAM_1_0, WORKSTREAM_1_1
from interlock.workflows.machines.supervision.job import JOB
from interlock.workflows.machines.supervision.supervised_worker import SUPERVISED_WORKER
from interlock.workflows.versioning.validate import check

SHIPPED = (
    STORY,
    SPRINT,
    PR_REVIEW,
    APPROVAL,
    RUN_1_0,
    RUN_1_1,
    WORKSTREAM_0_1,
    WORKSTREAM_0_2,
    WORKSTREAM_1_0,
    WORKSTREAM_1_1,
    TASK_0_2,
    TASK_1_0,
    TASK_1_1,
    STEP_0_1,
    WORKER_1_0,
    WORKER_1_1,
    UET_WORKER,
    PATCH_LEDGER_1_0,
    PATCH_LEDGER_1_1,
    TEST_GATE_1_0,
    TEST_GATE_1_1,
    CIRCUIT_BREAKER,
    SUPERVISED_WORKER,
    JOB,
    OPERATOR_GRANT,
    DEPRECATION,
    REFUSAL_LOG,
    NARROWING,
)
WORKFLOWS: Mapping[tuple[str, str], Definition] = MappingProxyType(
    {(each.type, each.version): each for each in SHIPPED}
)


class Catalogue:
    """Definitions by (type, version), all checked. Raises `InvalidDefinition` if two have the same key."""

    def __init__(self, definitions: Iterable[Definition]) -> None:
        self._by_key: dict[tuple[str, str], Definition] = {}
        for definition in definitions:
            if self._by_key.setdefault((definition.type, definition.version), definition) is not definition:
                raise InvalidDefinition(f"{definition.type} {definition.version} is defined twice; raise one's version")
        self.warnings = [warning for definition in self._by_key.values() for warning in check(definition)]

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._by_key.values())

    def __contains__(self, key: object) -> bool:
        """Whether (type, version) is defined."""
        return key in self._by_key

    @cached_property
    def newest(self) -> Mapping[str, Definition]:
        """Type -> its newest definition, which new instances get."""
        ascending = sorted(self._by_key.values(), key=lambda each: tuple(map(int, each.version.split("."))))
        return {definition.type: definition for definition in ascending}

    def get(self, type_: str, version: str | None = None) -> Definition:
        """The definition of a type, the newest unless `version` is given.

        Raises:
            UnknownWorkflow: there is none; the message lists the known types or versions.
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

    @cached_property
    def resting(self) -> frozenset[tuple[str, str, str]]:
        """The (type, version, state) in which an instance may stay for ever without being stuck (RECOVER-3)."""
        return frozenset((each.type, each.version, state) for each in self for state in each.resting)

    def fires_itself(self, type_: str, trigger: str) -> set[Authority]:
        """By which authorities Interlock's own parts fire a trigger of a type: a deadline, a follow-up, an effect."""
        return set(self._fires_itself(type_, trigger))

    def _fires_itself(self, type_: str, trigger: str) -> Iterator[Authority]:
        for each in self:
            roles = {link.role for link in each.links if link.type == type_}
            roles |= {link.inverse for link in each.links if link.type == each.type == type_}
            if any(
                after.trigger == trigger and after.role in roles for move in each.transitions for after in move.then
            ):
                yield "machinery"
            if each.type == type_:
                if any(deadline.trigger == trigger for deadline in each.deadlines.values()):
                    yield "machinery"
                effects = (*each.birth_effects, *(effect for move in each.transitions for effect in move.effects))
                if any(trigger in (effect.done, effect.failed) for effect in effects):
                    yield "effect"


@cache
def catalogue(modules: tuple[str, ...] = ()) -> Catalogue:
    """The shipped definitions and those of `modules`, each of which must have a `WORKFLOWS` dict as this module has.

    Raises:
        InvalidDefinition: a definition contradicts itself, or a module has no readable `WORKFLOWS`.
    """
    definitions = list(SHIPPED)
    for name in modules:
        try:
            definitions += import_module(name).WORKFLOWS.values()
        except (ImportError, AttributeError) as error:
            raise InvalidDefinition(
                f"INTERLOCK_DEFINITIONS names {name!r}, which has no readable WORKFLOWS dict: {error}"
            ) from error
    return Catalogue(definitions)
