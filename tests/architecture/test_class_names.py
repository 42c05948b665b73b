"""A class's name stands for one thing."""

import ast
import subprocess
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("workflows", "db", "workers", "beat", "api", "console", "supervisor", "cli", "ops", "src")


def test_no_two_classes_have_one_name() -> None:
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    places = defaultdict(list)
    for name in listed.splitlines():
        if name.endswith(".py"):
            for node in ast.walk(ast.parse((ROOT / name).read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(name)
    assert len(places) > 300
    assert {each: where for each, where in places.items() if len(where) > 1} == {}
