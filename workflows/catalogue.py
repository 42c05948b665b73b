"""All definitions: the shipped ones, one line each here, and those that a user's modules and packages add."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType

from interlock.workflows.definition import Authority, Definition
from interlock.workflows.effects import DeclaredEffect, declared
from interlock.workflows.errors import InvalidDefinition, UnknownWorkflow
from interlock.workflows.faults import Fault, of_import
from interlock.workflows.machines.delivery.approval import APPROVAL
from interlock.workflows.machines.delivery.pr_review import PR_REVIEW
from interlock.workflows.machines.delivery.sprint import SPRINT
from interlock.workflows.machines.delivery.story import STORY
from interlock.workflows.machines.governance.api_token import API_TOKEN
from interlock.workflows.machines.governance.brake import BRAKE
from interlock.workflows.machines.governance.budget import BUDGET
from interlock.workflows.machines.governance.deprecation import DEPRECATION
from interlock.workflows.machines.governance.handover import HANDOVER
from interlock.workflows.machines.governance.limit import LIMIT
from interlock.workflows.machines.governance.narrowing import NARROWING
from interlock.workflows.machines.governance.operator_grant import OPERATOR_GRANT
from interlock.workflows.machines.governance.redrive import REDRIVE
from interlock.workflows.machines.governance.refusal_log import REFUSAL_LOG
from interlock.workflows.machines.governance.subscription import SUBSCRIPTION
from interlock.workflows.machines.legacy.step_0_1 import STEP_0_1
from interlock.workflows.machines.legacy.task_0_2 import TASK_0_2
from interlock.workflows.machines.legacy.workstream_0_1 import WORKSTREAM_0_1
from interlock.workflows.machines.legacy.workstream_0_2 import WORKSTREAM_0_2
from interlock.workflows.machines.orchestration.circuit_breaker import CIRCUIT_BREAKER
from interlock.workflows.machines.orchestration.patch_ledger import PATCH_LEDGER_1_0, PATCH_LEDGER_1_1
from interlock.workflows.machines.orchestration.phase import PHASE
from interlock.workflows.machines.orchestration.regression import REGRESSION
from interlock.workflows.machines.orchestration.rollback import ROLLBACK
from interlock.workflows.machines.orchestration.run import RUN_1_0, RUN_1_1
from interlock.workflows.machines.orchestration.task import TASK_1_0, TASK_1_1
from interlock.workflows.machines.orchestration.test_gate import TEST_GATE_1_0, TEST_GATE_1_1
from interlock.workflows.machines.orchestration.uet_worker import UET_WORKER
from interlock.workflows.machines.orchestration.worker import WORKER_1_0, WORKER_1_1
from interlock.workflows.machines.orchestration.workstream import WORKSTREAM_1_0, WORKSTREAM_1_1
from interlock.workflows.machines.supervision.job import JOB
from interlock.workflows.machines.supervision.supervised_worker import SUPERVISED_WORKER
from interlock.workflows.machines.timing.schedule import SCHEDULE
from interlock.workflows.versioning.models import follow_up_faults
from interlock.workflows.versioning.validate import check

SHIPPED = (
    STORY,
    SPRINT,
    PR_REVIEW,
    APPROVAL,
    PHASE,
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
    REGRESSION,
    ROLLBACK,
    SUPERVISED_WORKER,
    JOB,
    OPERATOR_GRANT,
    API_TOKEN,
    DEPRECATION,
    REDRIVE,
    REFUSAL_LOG,
    NARROWING,
    LIMIT,
    HANDOVER,
    BUDGET,
    BRAKE,
    SCHEDULE,
    SUBSCRIPTION,
)
WORKFLOWS: Mapping[tuple[str, str], Definition] = MappingProxyType(
    {(each.type, each.version): each for each in SHIPPED}
)
ENTRY_POINTS = "interlock.definitions"  # the group in which installed packages name modules with definitions or effects


class Catalogue:
    """Definitions by (type, version), all checked. Raises `InvalidDefinition` if two have the same key."""

    def __init__(self, definitions: Iterable[Definition]) -> None:
        self._by_key: dict[tuple[str, str], Definition] = {}
        for definition in definitions:
            if self._by_key.setdefault((definition.type, definition.version), definition) is not definition:
                raise InvalidDefinition(f"{definition.type} {definition.version} is defined twice; raise one's version")
        self.warnings = [warning for definition in self._by_key.values() for warning in _warnings(definition)]
        if wrong := [*follow_up_faults(self)]:
            raise InvalidDefinition("; ".join(wrong))

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

    def called(self, name: str) -> Definition:
        """The definition that `TYPE` (the newest) or `TYPE@VERSION` calls. Raises as `get` does."""
        type_, at, version = name.partition("@")
        return self.get(type_, version if at else None)

    @cached_property
    def resting(self) -> frozenset[tuple[str, str, str]]:
        """The (type, version, state) in which an instance may stay for ever without being stuck (RECOVER-3)."""
        return frozenset((each.type, each.version, state) for each in self for state in each.resting)

    @property
    def effects(self) -> Mapping[str, DeclaredEffect]:
        """The effects that users declared, by name."""
        return declared()

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
                if any(trigger in (effect.done, effect.failed) for effect in each.effects):
                    yield "effect"


def _warnings(definition: Definition) -> list[str]:
    """What is doubtful in a definition; shipped ones are checked once in a process and its forks."""
    key = (definition.type, definition.version)
    return _warnings_of_shipped(key) if WORKFLOWS.get(key) is definition else check(definition)


@cache
def _warnings_of_shipped(key: tuple[str, str]) -> list[str]:
    return check(WORKFLOWS[key])


@cache
def catalogue(modules: tuple[str, ...] = ()) -> Catalogue:
    """The shipped definitions and those of `modules` and of installed packages, with the effects that these declare.

    Args:
        modules: of INTERLOCK_DEFINITIONS. Each has a dict `WORKFLOWS`, as this module has, or declares effects.

    Raises:
        InvalidDefinition: a definition contradicts itself or names an unknown effect, an effect is not valid, or a
            module can not be imported or has neither.
    """
    definitions = list(SHIPPED)
    for name, whence in (*((each, "INTERLOCK_DEFINITIONS names") for each in modules), *_of_packages()):
        definitions += _of_module(name, whence)
    return Catalogue(definitions)


def _of_packages() -> Iterator[tuple[str, str]]:
    for each in entry_points(group=ENTRY_POINTS):
        package = each.dist.name if each.dist else "an installed package"
        yield each.module, f"the entry point {each.name!r} of {package} names"


def _of_module(name: str, whence: str) -> Iterable[Definition]:
    try:
        module = import_module(name)
    except InvalidDefinition:
        raise
    except (Exception, SystemExit) as error:  # whatever the module raises
        fault = of_import(error)
        raise InvalidDefinition(f"{whence} {name!r}, which cannot be imported: {fault}", [fault]) from error
    try:
        return definitions_in(module)
    except InvalidDefinition as error:
        raise InvalidDefinition(f"{whence} {name!r}: {error}", error.faults) from error


def definitions_in(module: ModuleType) -> tuple[Definition, ...]:
    """The definitions in a module's `WORKFLOWS`; none if it has only effects.

    Raises:
        InvalidDefinition: it has neither, something else in `WORKFLOWS`, or a definition under another's key.
    """
    known = getattr(module, "WORKFLOWS", None)
    if known is None and any(each.module == module.__name__ for each in declared().values()):
        return ()
    if not isinstance(known, Mapping) or not all(isinstance(each, Definition) for each in known.values()):
        cure = f"end it with {workflows_example(module)}"
        raise InvalidDefinition(f"it has no WORKFLOWS dict of definitions, and declares no effect: {cure}")
    wrong = [(key, each) for key, each in known.items() if key != (each.type, each.version)]
    if faults := [
        Fault(f"WORKFLOWS has {key!r:.100}: write {_entry(module, each)}", each.place) for key, each in wrong
    ]:
        raise InvalidDefinition("; ".join(map(str, faults)), faults)
    return tuple(known.values())


def named_in(module: ModuleType) -> tuple[Definition, ...]:
    """The definitions that a module has names for."""
    return tuple(dict.fromkeys(each for each in vars(module).values() if isinstance(each, Definition)))


def workflows_example(module: ModuleType) -> str:
    """The `WORKFLOWS` that a module should have: of its own definitions; if it names none, an example."""
    items = ", ".join(_entry(module, each) for each in named_in(module)) or '("deploy", "1.0.0"): DEPLOY'
    return f"WORKFLOWS = {{{items}}}"


def _entry(module: ModuleType, definition: Definition) -> str:
    """The item of `WORKFLOWS` for a definition, by the name that the module has for it."""
    name = next((name for name, each in vars(module).items() if each is definition), "…")
    return f'("{definition.type}", "{definition.version}"): {name}'
