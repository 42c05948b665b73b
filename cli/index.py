"""All commands, as `interlock --help` shows them, with the module of each.

A module is imported only when its command is called, so that `--help` answers at once and no command waits for the
imports of another.
"""

import re
from functools import cache
from importlib import import_module
from inspect import cleandoc
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

# Section -> command -> (module of `interlock.cli`, purpose in one line). The command's own --help has the details.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start and stop": {
        "up": ("server.up_down", "Start PostgreSQL, Valkey, the workers, beat and Flower, and keep them running."),
        "down": ("server.up_down", "Stop everything that `interlock up` started here."),
        "status": ("server.up_down", "Show each process: state, start time, number of restarts."),
        "open": ("server.open", "Print a link that signs in to the console, once."),
        "api": ("api.serve", "Serve the HTTP API, or print its OpenAPI document."),
        "mcp": ("mcp.mcp", "MCP for agents: serve it over stdio, or print a client's configuration."),
        "migrate": ("operations.migrate", "Upgrade the database to the newest schema and record the definitions."),
        "completion": ("server.completion", "Print a script by which bash, zsh or fish complete `interlock`."),
    },
    "Instances and their triggers": {
        "create": ("instances.instances", "Create an instance of a workflow type."),
        "fire": ("instances.instances", "Fire a trigger; workers apply it."),
        "show": ("instances.instances", "Show an instance: state, legal triggers, links, requests and effects."),
        "history": ("instances.instances", "Show every move of an instance."),
        "list": ("instances.instances", "List the newest instances."),
        "watch": ("instances.instances", "Follow an instance's moves as they are committed."),
        "schedule": (
            "schedules.schedules",
            "Schedules: at certain times, fire a trigger, create an instance or run a plan.",
        ),
        "subscription": (
            "subscriptions.subscriptions",
            "Subscriptions: deliver events to an endpoint, signed; add, change, replay them.",
        ),
        "definitions": ("definitions.definitions", "State machines: list, show, check, draw, export and change them."),
    },
    "Plans, and who carries them out": {
        "run": ("runs.runs", "Run a plan and show it live; watch, cancel, retry or resume a run."),
        "runs": ("runs.listing", "List the newest runs."),
        "phase": ("runs.phases", "Phases of a project: list, freeze and thaw them."),
        "worker": ("runs.workers", "Workers: list them; external agents register, claim and report here."),
        "gate": ("operations.gates", "Run a failed gate again, once what was wrong outside is mended."),
        "patch": ("patches.patches", "The patch ledger: what landed, what did not and why; roll patches back."),
        "quarantine": ("patches.quarantine", "Patches that were quarantined, and why; quarantine requests."),
        "compensation": ("patches.compensation", "Write a compensation plan: how to roll a committed patch back."),
        "regression": ("patches.regression", "Find the patch that broke something, by bisection."),
        "breaker": ("runs.breakers", "Circuit breakers: calls to tools that fail too often are refused for a while."),
        "limit": ("limits.limits", "Limits on what runs at once or starts in a period: set, list, show, remove them."),
        "budget": ("brakes.budgets", "Budgets of triggers, claims, tokens and money: set, list and remove them."),
        "supervise": ("jobs.workers", "Supervised workers: create, start, pause, resume, end and recover them."),
        "job": ("jobs.jobs", "Supervised jobs: submit, allocate, end and recover them."),
    },
    "When something is wrong": {
        "doctor": ("operations.operations", "Check every part; show what is wrong and how to fix it."),
        "stuck": ("operations.stuck", "List stuck instances: since when, why, and the command that would help."),
        "brake": ("brakes.brakes", "Brakes on what used up a budget or goes back and forth: list, put on, release."),
        "playbook": ("operations.playbooks", "Pages with symptom, check and cure; some can be run step by step."),
        "effect": ("operations.effects", "Actions on the outside world: list, show, try a dead one again."),
        "dead": ("operations.operations", "List requests and effects whose attempts are used up."),
        "redrive": ("operations.operations", "Give dead requests and effects a new set of attempts."),
        "override": ("operations.overrides", "Move an instance by hand, bypassing its guards; for operators."),
        "operator": ("operations.operators", "List, grant and revoke the right to override."),
        "token": ("tokens.tokens", "Tokens for programs that act over HTTP and MCP: create, list and revoke them."),
        "metrics": ("operations.metrics", "Serve or show the metrics that Prometheus scrapes."),
    },
    "Keep and prove": {
        "audit": ("audit.audit", "Prove that history is complete and was not rewritten."),
        "archive": ("audit.archive", "Move instances that ended long ago aside; they stay verifiable."),
        "backup": (
            "audit.backups",
            "Back up PostgreSQL while everything runs; list and try backups.",
        ),
        "restore": ("audit.restore", "Restore a backup into an empty home, and verify it."),
    },
}
SENTENCE = re.compile(r"(?<=\.)\s+(?=[A-Z])")  # where one ends
MODULES = {name: module for section in SECTIONS.values() for name, (module, _) in section.items()}


class Contents(TyperGroup):
    """Lists all commands without importing them, and imports only the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name, help=message, rich_help_panel=section)
            for section, commands in SECTIONS.items()
            for name, (_, message) in commands.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with, imported."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and loaded(str(name)), rest


@cache
def loaded(name: str) -> Any:
    """Import the module of the command `name` and return the command.

    A module with an `app` is a group of commands; any other has functions that are named as its commands are, with `_`
    after a name that means something else there.
    """
    from interlock.cli.lib.projects import add_project  # noqa: PLC0415 - it reads settings, which `--help` need not wait for

    module, app = import_module(f"interlock.cli.{MODULES[name]}"), typer.Typer(rich_markup_mode="rich")
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name)
    else:
        app.command(name)(getattr(module, f"{name}_", None) or getattr(module, name))
    return add_project(_readable(get_group(app).commands[name]))


def _readable(command: Any) -> Any:
    """Write the help of a command, or of a group and its commands, as people read it.

    Arguments as help texts call them: REF, not ref. Paragraphs without the line breaks of our source, except examples,
    which begin with `\\b`. In the list of a group the first sentence of each command.
    """
    for each in getattr(command, "commands", {}).values():
        _readable(each)
        each.short_help = each.short_help or SENTENCE.split(each.help or "", maxsplit=1)[0].partition("\n\n")[0]
    paragraphs = cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(each if each.startswith("\b") else each.replace("\n", " ") for each in paragraphs)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.metavar or parameter.name.upper()
    return command
