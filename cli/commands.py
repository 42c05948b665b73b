"""The commands there are, as `interlock --help` shows them, and where each lives.

A module is imported when its command is asked for: help answers at once, and nobody waits for what others need.
"""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

# Section -> command -> (module of `cli`, what it is for). Its own --help says the rest.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start and stop": {
        "up": ("servers", "Start PostgreSQL, Valkey, the workers, beat and Flower, and keep them running."),
        "down": ("servers", "Stop what `up` started here."),
        "status": ("servers", "Show every part: whether it runs, since when, how often it was restarted."),
        "migrate": ("operations", "Bring the database to the newest schema and record the definitions."),
        "demo": ("demo", "See it all once, in a directory of its own."),
    },
    "Instances and their triggers": {
        "create": ("triggers", "Create an instance of a workflow type."),
        "fire": ("triggers", "Fire a trigger; workers apply it."),
        "show": ("triggers", "Show an instance: state, legal triggers, links, requests and effects."),
        "history": ("triggers", "Show every move an instance made."),
        "list": ("triggers", "List the newest instances."),
        "watch": ("triggers", "Follow an instance's moves as they are committed."),
        "replay": ("operations", "Drive real pull requests through, from a file."),
        "definitions": ("definitions", "The machines: list, show, check, draw, export and change them."),
    },
    "Plans, and who carries them out": {
        "run": ("runs", "Carry out a plan, shown live; watch, cancel or resume a run."),
        "runs": ("run_list", "List the newest runs."),
        "worker": ("crew", "Workers; external agents register and claim here."),
        "patch": ("patches", "The patch ledger: what landed, what did not, taking patches back."),
        "quarantine": ("quarantine", "Patches that were set aside, and why."),
        "compensation": ("compensation", "Plans for taking a patch back."),
        "regression": ("regression", "Which patch broke it."),
        "breaker": ("breakers", "Circuit breakers: tools that are left alone for a while."),
        "supervise": ("supervision", "A supervisor's hand on its workers."),
        "job": ("jobs", "A supervisor's hand on jobs."),
    },
    "When something is wrong": {
        "doctor": ("operations", "What is wrong, and what would help."),
        "stuck": ("stuck", "Who stands still, since when, why, and the command that would help."),
        "playbook": ("playbooks", "Symptom, check, cure: pages to read, and some to walk through."),
        "dead": ("operations", "List requests and effects whose attempts are used up."),
        "redrive": ("operations", "Give dead requests and effects new attempts."),
        "override": ("overrides", "Move an instance by hand, past its guards; for operators."),
        "operator": ("operators", "Who may override."),
        "metrics": ("metrics", "What Prometheus scrapes."),
    },
    "Keep and prove": {
        "audit": ("audit", "Prove that history is whole and was not rewritten."),
        "archive": ("archive", "Move what ended long ago aside, verifiable for ever."),
        "backup": ("backups", "Back PostgreSQL up while everything goes on working."),
        "restore": ("backups", "Put a backup into an empty home, and verify it."),
    },
}
MODULES = {name: module for section in SECTIONS.values() for name, (module, _) in section.items()}


class Contents(TyperGroup):
    """Lists every command without importing it, and imports the one that is named."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name, help=says, rich_help_panel=section)
            for section, commands in SECTIONS.items()
            for name, (_, says) in commands.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with, itself."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and loaded(str(name)), rest


def loaded(name: str) -> Any:
    """The command `name` itself, its module imported.

    A module with an `app` is a group of commands; the `register(app)` of any other adds its single ones.
    """
    module, app = import_module(f"cli.{MODULES[name]}"), typer.Typer(rich_markup_mode="rich")
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name)
    else:
        module.register(app)
    return get_group(app).commands[name]
