"""`--project`: names are looked up in one project, lists show all of them or one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from interlock.cli.lib.projects import NAMING
from tests.cli.terminal import Terminal
from tests.cli.walking import every_command, options

# Commands that take no name of a project's: workers serve all projects.
NAMELESS = {
    ("archive", "run"), ("audit", "verify"), ("doctor",), ("quarantine", "request"), ("redrive",),
    ("effect", "show"), ("effect", "retry"), ("token", "revoke"),
    ("worker", "claim"), ("worker", "finish"), ("worker", "list"), ("worker", "register"),
    ("worker", "resume"), ("worker", "show"), ("worker", "shutdown"), ("worker", "suspend"),
}  # fmt: skip
ON_INSTANCES = {
    *("archive", "breaker", "compensation", "create", "dead", "doctor", "fire", "history", "job", "list", "patch"),
    *("quarantine", "redrive", "regression", "run", "runs", "show", "stuck", "supervise", "watch", "worker"),
    *("effect", "gate", "override", "phase", "schedule", "limit", "token", "budget", "brake", "subscription"),
}
# The lists of all projects, or of one.
LISTS = [
    ("archive", "list"), ("breaker", "list"), ("dead",), ("effect", "list"), ("job", "list"), ("list",),
    ("override", "list"), ("patch", "list"), ("patch", "quarantined"), ("phase", "list"), ("quarantine", "list"),
    ("runs",), ("schedule", "list"), ("limit", "list"), ("budget", "list"),
    ("brake", "list"), ("subscription", "list"), ("stuck",), ("supervise", "worker", "list"),
]  # fmt: skip


@pytest.fixture
def other(terminal: Terminal, project: str) -> Terminal:
    """The same installation, in another project."""
    return terminal.set(INTERLOCK_PROJECT=f"other/{project}")


def test_every_command_on_an_instance_has_the_option() -> None:
    """What names an instance, or lists instances, says of which project; the rest has no such option."""
    for words, command in every_command():
        on_instances = words[0] in ON_INSTANCES or words[:2] == ("playbook", "run") or words[:2] == ("audit", "verify")
        if words == ("run", "check") or words in NAMELESS:
            on_instances = False
        of_definitions = {("definitions", name) for name in ("handover", "migrate", "narrow", "narrowed", "show")}
        if words in of_definitions or words == ("audit", "report"):
            on_instances = True
        assert ("--project" in options(command)) == on_instances, words


def test_the_parameters_that_stand_for_names_are_all_in_use() -> None:
    """A parameter that no command has would be a rule about nothing."""
    used = {each.name for _, command in every_command() for each in command.params}
    assert used >= NAMING


def test_one_name_in_two_projects_is_two_instances(terminal: Terminal, other: Terminal, name: str) -> None:
    mine, others = (each.ok("create", "story", name) for each in (terminal, other))
    assert terminal.ok("show", name)["id"] == mine["id"] != others["id"] == other.ok("show", f"story/{name}")["id"]
    assert terminal.ok("show", name, "--project", others["project"])["id"] == others["id"]
    assert terminal.ok("show", others["id"])["project"] == others["project"], "a UUID is one of any project"
    fired = terminal.ok("fire", name, "design_complete", "--by", "ann", "--project", others["project"], "--wait")
    assert (fired["workflow_id"], fired["status"]) == (others["id"], "applied")
    assert not terminal.ok("history", mine["id"])


def test_a_name_of_another_project_is_refused_and_says_of_which(terminal: Terminal, other: Terminal, name: str) -> None:
    made = other.ok("create", "story", name)
    for words in (
        ("show", name),
        ("fire", name, "block", "--by", "ann"),
        ("history", f"story/{name}"),
        ("watch", name),
    ):
        refused = terminal.run(*words)
        assert refused.code == 2
        refused.is_one_clear_line(name, made["project"], "--project")


def test_a_list_is_of_all_projects_or_one(terminal: Terminal, other: Terminal, name: str, project: str) -> None:
    for each in (terminal, other):
        each.ok("create", "sprint", name)
    found = terminal.ok("list", "--type", "sprint", "--limit", "10000")
    assert {row["project"] for row in found if row["entity_id"] == name} == {project, f"other/{project}"}
    (mine,) = terminal.ok("list", "--project", project)
    assert (mine["entity_id"], mine["project"]) == (name, project)
    assert "project" not in terminal.run("list", "--project", project).out.splitlines()[2], "one project, no column"
    assert f"other/{project}"[:20] in terminal.run("list", "--project", f"other/{project}").out


def test_dead_requests_are_of_all_projects_or_one(
    terminal: Terminal, other: Terminal, name: str, project: str, tmp_path: Path
) -> None:
    data = json.dumps({"broken_while": str(tmp_path)})
    for each in (terminal, other):
        each.ok("create", "ticket", name)
        assert each.run("fire", name, "take", "--by", "ann", "--data", data, "--wait").code == 1
    of_all = [row for row in terminal.ok("dead", "--limit", "10000")["requests"] if row["entity_id"] == name]
    (mine,) = terminal.ok("dead", "--project", project)["requests"]
    tmp_path.rmdir()
    terminal.ok("redrive", "--reason", "mended", *(row["request_id"] for row in of_all))
    assert {row["project"] for row in of_all} == {project, f"other/{project}"}
    assert (mine["entity_id"], mine["project"]) == (name, project)
    assert terminal.ok("dead", "--project", project) == {"requests": [], "effects": []}


@pytest.mark.parametrize("words", LISTS)
def test_an_empty_list_says_of_which_project_it_is(terminal: Terminal, project: str, words: tuple[str, ...]) -> None:
    """A list of one project, which has no column for it, says so as well when it is not empty."""
    said = terminal.run(*words, "--project", f"no {project}")
    assert said.code == 0, said.said
    assert f"in project 'no {project}'" in " ".join(said.out.split())


def test_an_empty_list_of_all_projects_says_that(terminal: Terminal) -> None:
    assert "0 newest instances in any project" in terminal.run("list", "--type", "step").out


def test_a_link_is_to_an_instance_of_the_same_project(terminal: Terminal, other: Terminal, name: str) -> None:
    other.ok("create", "story", name)
    create = ("create", "pr_review", name, "--context", f'{{"story_id": "{name}", "author": "ann"}}')
    refused = terminal.run(*create)
    assert refused.code == 2
    refused.is_one_clear_line(name, "does not exist in project")
    other.ok(*create)


def test_without_any_setting_it_is_the_default_one(installation: Terminal, name: str) -> None:
    made = installation.ok("create", "story", name)
    assert made["project"] == "default"
    assert installation.ok("show", name)["id"] == made["id"]


def test_an_empty_setting_is_unset(installation: Terminal, name: str) -> None:
    assert installation.set(INTERLOCK_PROJECT="").ok("create", "story", name)["project"] == "default"


def test_commands_on_the_installation_ask_for_no_project(installation: Terminal, tmp_path: Path) -> None:
    wrong = installation.set(INTERLOCK_PROJECT=" x")
    for words in ("doctor", "status"):
        assert "INTERLOCK_PROJECT" not in wrong.run(words).said
    nothing_here = replace(wrong, home=tmp_path).run("down")
    assert nothing_here.code == 0, nothing_here.said


def test_a_uuid_is_a_project_in_either_case(installation: Terminal, name: str) -> None:
    project = str(uuid7())
    made = installation.ok("create", "story", name, "--project", project.upper())
    assert made["project"] == project
    assert installation.ok("show", name, "--project", project)["id"] == made["id"]


@pytest.mark.parametrize("wrong", ["", " x", "x" * 101, "a\u200bb", "a\tb"])
def test_what_is_no_name_is_no_project(terminal: Terminal, project: str, story: str, wrong: str) -> None:
    for words in (("show", story), ("list",), ("create", "story", "X")):
        refused = terminal.run(*words, "--project", wrong)
        assert refused.code == 2
        refused.is_one_clear_line("--project")
    assert terminal.set(INTERLOCK_PROJECT=wrong).run("show", story, "--project", project).code == 0
    if wrong == "":
        return  # an empty variable is unset
    refused = terminal.set(INTERLOCK_PROJECT=wrong).run("show", story)
    assert refused.code == 2
    refused.is_one_clear_line("INTERLOCK_PROJECT")


def test_a_breaker_is_one_of_its_project(terminal: Terminal, other: Terminal, name: str, project: str) -> None:
    context = ("--context", f'{{"tool_id": "{name}"}}')
    other.ok("create", "circuit_breaker", name, *context)
    refused = terminal.run("breaker", "show", name)
    assert refused.code == 2
    refused.is_one_clear_line(name, project)
    assert terminal.ok("breaker", "show", name, "--project", f"other/{project}")["state"] == "CLOSED"
    assert [row["tool_id"] for row in terminal.ok("breaker", "list", "--project", f"other/{project}")] == [name]


def test_a_heartbeat_is_of_the_projects_uet_worker(terminal: Terminal, other: Terminal, name: str) -> None:
    made = other.ok("create", "uet_worker", name)
    terminal = terminal.set(INTERLOCK_WORKER_SECRET=made["secret"])
    refused = terminal.run("worker", "heartbeat", name)
    assert refused.code == 2
    refused.is_one_clear_line("no worker is called", made["project"], "--project")
    assert terminal.ok("worker", "heartbeat", name, "--project", made["project"])["state"] == made["current_state"]


def test_a_job_is_in_its_parents_project(terminal: Terminal, other: Terminal, project: str) -> None:
    parent: Any = other.ok("job", "submit", "the whole")["subject"]
    refused = terminal.run("job", "submit", "a part", "--parent", parent["id"])
    assert refused.code == 2
    refused.is_one_clear_line(parent["project"], project)
    part = terminal.ok("job", "submit", "a part", "--parent", parent["id"], "--project", parent["project"])["subject"]
    assert part["parent_job_id"] == parent["id"]
    assert {row["id"] for row in terminal.ok("job", "list", "--project", parent["project"])} == {
        parent["id"],
        part["id"],
    }


def test_a_plan_of_another_project_than_the_one_named_is_refused(terminal: Terminal, name: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"project: own-{name}\n{Path('examples/plans/hello.yaml').read_text()}")
    start = ("run", "start", str(plan), "--name", name, "--detach")
    refused = terminal.run(*start, "--project", f"other-{name}")
    assert refused.code == 2
    refused.is_one_clear_line(f"own-{name}", f"other-{name}")
    assert terminal.ok("list", "--project", f"own-{name}") == []
    for words in ((), ("--project", f"own-{name}")):
        assert terminal.ok(*start[:4], f"{name}{len(words)}", "--detach", *words)["project"] == f"own-{name}"


def test_a_command_that_is_offered_names_the_project(terminal: Terminal, project: str, name: str) -> None:
    """What is suggested after a command with `--project` works where it is pasted."""
    started = terminal.run(
        "run", "start", "examples/plans/hello.yaml", "--name", name, "--detach", "--project", f"more-{project}"
    )
    assert started.code == 0, started.said
    assert f"--project more-{project}" in started.out
    usual = terminal.run("run", "start", "examples/plans/hello.yaml", "--name", name, "--detach")
    assert "--project" not in usual.out, usual.said
    for words in (("--project", f"more-{project}"), ()):
        watched = terminal.run("run", "watch", name, *words)
        assert watched.code == 0, watched.said + terminal.run("run", "show", name, *words).said
