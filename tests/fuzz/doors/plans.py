"""Plans: YAML that anybody may hand in."""

import json
from pathlib import Path

import yaml
from hypothesis import strategies as st

from interlock.workers.effects import plan_files
from interlock.workers.orchestration.contexts import Contexts, assign_ids
from interlock.workers.orchestration.run_instances import breakers, members
from interlock.workflows.plan.defaults import settle
from interlock.workflows.plan.read import read_plan
from interlock.workflows.plan.remaining import rest
from tests.fuzz.door import Door, Ground, Target
from tests.fuzz.shapes import spliced, tampered, written
from tests.property.plans import plans, tangles

EXAMPLES = tuple(
    each.read_bytes() for each in sorted((Path(__file__).parents[3] / "examples" / "plans").glob("*.yaml"))
)
EVERYTHING = {
    "name": "all",
    "phase_id": "p",
    "phases": {"p": {"allowed_paths": ["src/**"], "required_gates": [], "frozen": "why"}},
    "project": "7a0e0f6e-0d2c-4a77-9a35-3f1b4d1f0c11",
    "defaults": {
        "retries": 2,
        "timeout": "1h30m",
        "env": {"A": "b"},
        "limits": {"memory": "512M", "cpu_seconds": "2m"},
    },
    "tools": {"compiler": {"failure_threshold": 3}},
    "repository": {"path": ".", "branch": "main"},
    "workstreams": [
        {
            "id": "build",
            "tasks": [
                {"id": "a", "command": ["true"], "tool": "compiler", "backoff": {"base": 1, "factor": 2, "cap": "5m"}},
                {"id": "b", "shell": "x", "depends_on": ["a"], "gates": ["g"]},
                {"id": "c", "agent": {"instructions": "do", "inputs": {"x": [1, 1.5, None, {"y": "z"}]}}},
                {"id": "d", "patch": {"diff": "--- a/x\n+++ b/x\n", "message": "m"}},
            ],
            "gates": [{"id": "g", "type": "LINT", "shell": "x", "blocks": ["c"]}],
        },
        {"id": "rest", "depends_on": ["build"], "skip": True, "tasks": [{"id": "z", "command": ["x", "y"]}]},
    ],
}
TRICKS = (
    b"name: x\nworkstreams: &a [{id: w, tasks: [{id: t, shell: *a}]}]\n",
    b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n",
    b"%YAML 1.2\n---\nname: !!python/object:os.system x\n...\n---\n",
    b'{"name": "\\ud83d\\ude00 \\ud83d", "workstreams": []}',
    b"name: 0x1F\nworkstreams:\n- id: 1.10\n  tasks:\n  - {id: on, command: [true, 12:30, ~], retries: 1e1}\n",
    b"? [complex, key]\n: |\n  text\n? !x y\n: >-\n  z\n<<: {name: x}\n",
)


def _opened(ground: Ground) -> Target:
    def read(data: bytes) -> None:
        plan = read_plan(data)
        assert settle(plan) == plan
        due = rest(plan, frozenset())
        plan_files.patches(due, ground.directory)
        contexts = Contexts(due, "default", assign_ids(due, None), {}, {}, {})
        for birth in (
            *members(ground.runtime, contexts, by="x", priority=0),
            *breakers(ground.runtime, contexts, by="x"),
        ):
            json.dumps(dict(birth.context), allow_nan=False)

    return read


def _yaml(value: object) -> bytes:
    try:
        return yaml.safe_dump(value, allow_unicode=True).encode()
    except UnicodeEncodeError:
        return written(value)


SOUND = plans() | tangles()
SHAPED = (
    SOUND.map(written) | SOUND.map(_yaml) | tampered((EVERYTHING,)).map(written) | tampered((EVERYTHING,)).map(_yaml)
)

PLANS = Door(
    "plans",
    "Any plan file is either read as a plan that can be submitted, or refused with its faults.",
    _opened,
    SHAPED | spliced(SHAPED | st.sampled_from((*EXAMPLES, *TRICKS))),
    (*EXAMPLES, *TRICKS, written(EVERYTHING), _yaml(EVERYTHING)),
)
