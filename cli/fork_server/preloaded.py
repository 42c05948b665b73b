"""Imports what the commands of agents need, when it is imported itself; in the supervisor, so that its forks share it.

Other commands are rare, and import more (Alembic, Markdown) than an idle process should hold.
"""

from importlib import import_module

from interlock.cli.index import SECTIONS

OFTEN = ("Instances and their triggers", "Plans, and who carries them out")

for _module in dict.fromkeys(module for section in OFTEN for module, _ in SECTIONS[section].values()):
    import_module(f"interlock.cli.{_module}")
for _module in ("interlock.cli.lib.errors", "interlock.cli.main"):
    import_module(_module)
