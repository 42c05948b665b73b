"""Options that several commands have in common, declared once."""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeVar

import typer

from interlock.workers.system.users import os_user

Chosen = TypeVar("Chosen")
IfVersion = Annotated[
    int | None,
    typer.Option(metavar="N", help="Only if it is still at version N, which `interlock show REF` says."),
]


def person(message: str, *names: str) -> Any:
    """An option that names who acts: in every command the operating system's user, unless somebody else is named."""
    return typer.Option(*names, help=message, default_factory=os_user, show_default="the OS user")


Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0: any free one.")]
By = Annotated[str, person("The operator.")]
Reason = Annotated[str, typer.Option(help="Why; stored in history.")]


def port_of(*wanted: int | None) -> int:
    """The first port that is given; the last one always is."""
    return next(each for each in wanted if each is not None)


def sharing(
    options: Callable[..., Chosen],
    run: Callable[[Callable[..., Any], Chosen, dict[str, Any]], None],
    *,
    given: str = "order",
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Turn a function into a command that has the parameters of `options`, too.

    Args:
        options: called with its parameters' values.
        run: called with the function, what `options` returned, and the values of the function's own parameters.
        given: the parameter that the function gets from `run`.
    """
    shared = signature(options).parameters

    def command_of(act: Callable[..., Any]) -> Callable[..., None]:
        def command(**arguments: Any) -> None:
            run(act, options(**{name: arguments.pop(name) for name in shared}), arguments)

        own = [each for name, each in signature(act).parameters.items() if name != given]
        parameters = sorted([*own, *shared.values()], key=lambda each: each.default is not Parameter.empty)
        command.__name__, command.__doc__ = act.__name__, act.__doc__
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return command_of
