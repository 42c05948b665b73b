"""Random plans for the storm: several workstreams, dependencies, gates that fail, patches, tools, agents' work."""

import subprocess
from pathlib import Path
from random import Random
from typing import Any

IDENTITY = ("-c", "user.name=storm", "-c", "user.email=storm@localhost")
FAILS = "sleep 0.2; test $(od -An -N1 -tu1 /dev/urandom) -lt {of_256}"  # else it fails, another time perhaps not
TOOLS = {"compiler": {"failure_threshold": 2, "cooldown_seconds": 3}}
AGENTS_CAN = "prose"  # what the tasks for agents ask for; nobody offers it until `stuck` has somebody registered
NOWHERE = "gpu"  # a capability that no worker offers at first


def make_repository(path: Path) -> None:
    """A repository with one commit, which all runs change."""
    path.mkdir()
    (path / "shared.txt").write_text("one\ntwo\nthree\n")
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*IDENTITY, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=path, check=True)


def random_plan(chances: Random, number: int) -> dict[str, Any]:
    """A plan; every second or so has patches, which need the folder's `repository`."""
    with_patches = chances.random() < 0.5
    workstreams: list[dict[str, Any]] = []
    for w in range(chances.randint(1, 3)):
        before = [each["id"] for each in workstreams if chances.random() < 0.4]
        workstreams.append(_workstream(chances, f"w{w}", f"{number}-{w}", with_patches=with_patches))
        workstreams[-1] |= {"depends_on": before, "critical": chances.random() < 0.2}
    plan = {
        "name": f"storm-{number}",
        "defaults": {"retries": chances.randint(1, 4), "timeout": 20, "backoff": {"base": 0.5, "cap": 2}},
        "tools": TOOLS,
        "workstreams": workstreams,
    }
    return plan | ({"repository": {"path": "repository"}} if with_patches else {})


def _workstream(chances: Random, name: str, unique: str, *, with_patches: bool) -> dict[str, Any]:
    tasks: list[dict[str, Any]] = []
    for t in range(chances.randint(1, 4)):
        after = [each["id"] for each in tasks if chances.random() < 0.4]
        work = _work(chances, f"{unique}-{t}", with_patches=with_patches)
        tasks.append({"id": f"t{t}", "depends_on": after, "critical": chances.random() < 0.1, **work})
    gates = [_gate(chances, f"g{g}", tasks) for g in range(chances.choice([0, 0, 1, 2]))]
    return {"id": name, "tasks": tasks, "gates": gates}


def _work(chances: Random, unique: str, *, with_patches: bool) -> dict[str, Any]:
    if with_patches and chances.random() < 0.4:
        return {"patch": {"diff": _collision(unique) if chances.random() < 0.15 else _new_file(unique)}}
    kinds: list[tuple[int, dict[str, Any]]] = [
        (8, {"shell": f"sleep {chances.uniform(0, 1.5):.1f}; echo done"}),
        (3, {"shell": f"for i in 1 2 3 4; do echo step $i; sleep {chances.uniform(0.3, 1.5):.1f}; done"}),
        (3, {"shell": FAILS.format(of_256=170)}),
        (3, {"shell": FAILS.format(of_256=110), "tool": "compiler", "retries": 6}),
        (1, {"shell": "exit 3", "retries": 1}),
        (1, {"shell": "sleep 60", "timeout": 3, "retries": 1}),
        (1, {"agent": {"instructions": "Write."}, "capabilities": [AGENTS_CAN]}),
        (1, {"shell": "sleep 0.5", "capabilities": [NOWHERE]}),
    ]
    return chances.choices([work for _, work in kinds], [weight for weight, _ in kinds])[0]


def _gate(chances: Random, name: str, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    gate: dict[str, Any] = {"id": name, "type": "UNIT", "reruns": chances.randint(0, 2), "timeout": 20}
    gate["shell"] = chances.choice(["sleep 0.5", FAILS.format(of_256=170), FAILS.format(of_256=210)])
    match chances.choice(["before", "after", "whole"]):
        case "before":
            gate["blocks"] = [chances.choice(tasks)["id"]]
        case "after":
            chances.choice(tasks).setdefault("gates", []).append(name)
    return gate


def _new_file(unique: str) -> str:
    return (
        f"diff --git a/notes/{unique}.txt b/notes/{unique}.txt\nnew file mode 100644\n--- /dev/null\n"
        f"+++ b/notes/{unique}.txt\n@@ -0,0 +1 @@\n+{unique}\n"
    )


def _collision(unique: str) -> str:
    """Of all that change this line, one can land."""
    return (
        "diff --git a/shared.txt b/shared.txt\n--- a/shared.txt\n+++ b/shared.txt\n"
        f"@@ -1,3 +1,3 @@\n one\n-two\n+{unique}\n three\n"
    )
