"""The commands that `stuck` offers, as what the console can do: a link, a post, or why it is for a shell."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from interlock.db.core.instances import as_uuid
from interlock.workers.operations.stuck.detector import Stuck
from interlock.workflows.output.suggestions import OfferedCommand

Options = Mapping[str, Any]


OF_NODES = "It starts or asks processes of a machine, which a page cannot."


@dataclass(frozen=True, slots=True)
class Cure:
    """What would help.

    Attributes:
        label: of the link or the button.
        url: of the link, or where the button posts to.
        fields: what is posted beside the reason; None: it is a link.
        confirm: what the button does, to be read before it is pressed.
        by_operators: whether only they may.
    """

    label: str
    url: str
    fields: Mapping[str, str] | None = None
    confirm: str = ""
    by_operators: bool = True


@dataclass(frozen=True, slots=True)
class ForShell:
    """The command is to be run in a shell; `why`: one sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class _Offer:
    """A command's arguments, behind its own words."""

    stuck: Stuck
    arguments: tuple[str, ...] = ()
    options: Options = field(default_factory=dict)

    @property
    def ref(self) -> str:
        """The instance, for an address. Raises `ValueError` if it is no id: a name could lead the address elsewhere."""
        return str(UUID(self.arguments[0]))

    @property
    def seen(self) -> dict[str, str]:
        """The version that the command is for, as a field."""
        version = self.options.get("if_version")
        return {} if version is None else {"if_version": str(version)}

    @property
    def project(self) -> str:
        """Where the command looks names up."""
        return str(self.options.get("project") or self.stuck.project)


def cure(stuck: Stuck) -> Cure | ForShell:
    """The cure of a stuck instance."""
    command = stuck.command
    if not isinstance(command, OfferedCommand):
        return ForShell(OF_NODES)
    for words, made in CURES.items():
        if command.words[: len(words)] == words:
            with suppress(ValueError):
                return made(_Offer(stuck, command.words[len(words) :], command.options))
    return ForShell("It names what this console cannot address.")


def _show(offer: _Offer) -> Cure:
    return Cure("Show what it waits for", f"/instances/{offer.ref}")


def _fire(offer: _Offer) -> Cure:
    ref, trigger = offer.ref, offer.arguments[1]
    of_approval = ref != str(offer.stuck.workflow_id) or offer.stuck.workflow_type == "approval"
    if trigger in ("approve", "reject") and of_approval:
        return Cure("Decide", f"/approvals/{ref}")
    fields = {"trigger": trigger, **offer.seen}
    return Cure(trigger, f"/instances/{ref}/fire", fields, f"This fires {trigger}, in your name.", by_operators=False)


def _redrive(offer: _Offer) -> Cure:
    fields = {"id": offer.arguments[0], "project": offer.project}
    return Cure("Redrive", "/dead/redrive", fields, "It gets a new set of attempts.")


def _release(offer: _Offer) -> Cure:
    fields = {"name": offer.arguments[0], "project": offer.project}
    return Cure("Release the brake", "/brakes/release", fields, "All that it holds goes on, in the order accepted.")


def _reset_task(offer: _Offer) -> Cure:
    url = f"/overrides/reset-task/{offer.ref}"
    return Cure("Run the task again", url, offer.seen, "A new task takes its place.")


def _reset_breaker(offer: _Offer) -> Cure:
    url = f"/overrides/reset-breaker/{offer.stuck.workflow_id}"
    return Cure("Close the breaker", url, offer.seen, "Calls of its tool are let through at once.")


def _shut_down(offer: _Offer) -> Cure:
    if as_uuid(offer.arguments[0]) is None:
        return Cure("Workers", "/workers")
    silent = {"if_silent": "true"} if offer.options.get("if_silent") else {}
    confirm = "Its tasks are given back." + (" If it answers again, nothing is done." if silent else "")
    url = f"/workers/{offer.ref}/shutdown"
    return Cure("Shut the worker down", url, {**offer.seen, **silent}, confirm)


def _resume_worker(offer: _Offer) -> Cure:
    fields = {"trigger": "resume", **offer.seen}
    return Cure("Resume the worker", f"/instances/{offer.ref}/fire", fields, "It takes tasks again.")


def _thaw(offer: _Offer) -> Cure:
    fields = {"name": offer.arguments[0], "project": offer.project, **offer.seen}
    return Cure("Thaw the phase", "/phases/thaw", fields, "The runs that it holds go on.")


def _validate_job(offer: _Offer) -> Cure:
    return Cure("Validate the job", f"/jobs/{offer.ref}/validate", {}, "It waits for workers then.", by_operators=False)


def _approve_rollback(offer: _Offer) -> Cure:
    fields = {"trigger": "approve", "if_version": str(offer.stuck.version)}
    return Cure(
        "Approve the rollback",
        f"/instances/{offer.ref}/fire",
        fields,
        "Workers revert the patch, and its gates run again.",
    )


def _page(label: str, url: str) -> Callable[[_Offer], Cure]:
    return lambda _offer: Cure(label, url)


def _itself(offer: _Offer) -> Cure:
    return Cure("Show it", f"/instances/{offer.stuck.workflow_id}")


def _in_shell(why: str) -> Callable[[_Offer], ForShell]:
    return lambda _offer: ForShell(why)


CURES: Mapping[tuple[str, ...], Callable[[_Offer], Cure | ForShell]] = {
    ("show",): _show,
    ("fire",): _fire,
    ("redrive",): _redrive,
    ("brake", "release"): _release,
    ("override", "reset-task"): _reset_task,
    ("worker", "shutdown"): _shut_down,
    ("worker", "resume"): _resume_worker,
    ("worker", "show"): _page("Workers", "/workers"),
    ("worker", "list"): _page("Workers", "/workers"),
    ("breaker", "reset"): _reset_breaker,
    ("breaker", "show"): _page("Breakers", "/breakers"),
    ("schedule", "show"): _page("Schedules", "/schedules"),
    ("stuck",): _page("What it waits for", "/stuck?all=true"),
    ("dead",): _page("Dead letters", "/dead"),
    ("limit", "show"): _page("Limits", "/brakes"),
    ("job", "show"): _show,
    ("job", "validate"): _validate_job,
    ("subscription", "show"): _itself,
    ("phase", "thaw"): _thaw,
    ("regression", "approve"): _approve_rollback,
    ("doctor",): _in_shell("It looks at processes, files and settings of the machine on which it runs."),
    ("up",): _in_shell(OF_NODES),
    ("worker", "register"): _in_shell(
        "It prints the agent's secret, which belongs to the agent's process and to no page."
    ),
    ("worker", "claim"): _in_shell("The agent itself claims its tasks, with its secret."),
    ("supervise", "worker", "create"): _in_shell(
        "It prints the worker's secret, which belongs to the worker's process."
    ),
    ("playbook", "run"): _in_shell("It shows each step and asks before it; that takes a terminal."),
    ("quarantine", "request"): _in_shell("It is kept with the request and is no event, which could name your session."),
    ("definitions", "list"): _in_shell(
        "It lists what this release knows; a release that knows more has to be installed."
    ),
}
