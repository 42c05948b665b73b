"""A machine with models for its context and data, in three versions, as a user's module has it."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, Field, field_validator

from interlock.workers.effects.declared import EffectCall
from interlock.workflows.definition import Deadline, Definition, Effect, Guard, T
from interlock.workflows.effects import effect
from interlock.workflows.guard_context import Case
from tests.small_machines import small_machine


class Registry(BaseModel, extra="forbid"):
    """Where images are."""

    host: str
    mirrors: tuple[str, ...] = ()


class Shipment(BaseModel, extra="forbid"):
    """What is to be shipped."""

    image: str = Field(description="The image's name.", max_length=40)
    replicas: int = Field(2, ge=1, le=9)
    registry: Registry | None = None
    patience_seconds: float | None = Field(None, gt=0)

    @field_validator("image")
    @classmethod
    def tagged(cls, image: str) -> str:
        """An image has a tag."""
        if ":" not in image:
            raise ValueError("an image needs a tag, such as web:7")
        return {"keyerror:1": {}}.get(image, {image: image})[image]


class Start(BaseModel, extra="forbid"):
    """Why it is shipped."""

    ticket: int
    labels: dict[str, str] = {}


class Shipped(BaseModel, extra="forbid"):
    """Where it is."""

    url: str = Field(alias="at")


class Heavier(Shipment, extra="forbid"):
    """The context of version 2.0.0."""

    weight: int


class Longer(Start, extra="forbid"):
    """The data of version 2.0.0."""

    reason: str


ship: Callable[[EffectCall[Shipment, Start]], Any] = lambda call: Shipped(at=call.instance.context.image)  # noqa: E731
calls: list[EffectCall[Shipment, Start]] = []


@effect("tests_ship", retries=1)
def _ship(call: EffectCall[Shipment, Start]) -> Any:
    calls.append(call)
    return ship(call)


def _light(case: Case[Shipment, Start]) -> bool:
    return case.context.replicas + case.metadata.ticket < 100


light = Guard("light", _light, "replicas and ticket must be less than 100 together")

SHIPMENT = small_machine(
    "shipment",
    "Something to ship, whose context and data have models.",
    "planned shipping | shipped lost",
    T("start", "planned", "shipping", when=(light,), effects=(Effect("tests_ship", "arrived", "failed"),)),
    T("drop", "planned", "lost"),
    T("arrived", "shipping", "shipped", by="effect"),
    T("failed", "shipping", "lost", by="effect"),
    T("late", "shipping", "lost", by="machinery"),
    context=Shipment,
    data={"start": Start, "arrived": Shipped},
    deadlines={"shipping": Deadline(900, "late", context_key="patience_seconds")},
)


def changed(version: str, **models: Any) -> Definition:
    """The machine with other models."""
    parts = {name: getattr(SHIPMENT, name) for name in ("states", "initial", "terminal", "transitions", "deadlines")}
    terms = {"context": Shipment, "data": dict(SHIPMENT.data)} | models
    return Definition(type="shipment", version=version, summary=SHIPMENT.summary, **parts, **terms)


WORKFLOWS: Mapping[tuple[str, str], Definition] = {("shipment", "1.0.0"): SHIPMENT}
