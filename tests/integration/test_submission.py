"""A plan becomes a run: every row as the plan says, all of them or none."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from interlock.workers.client.client import Client
from interlock.workers.orchestration.contexts import LONGEST_ENTITY
from interlock.workers.orchestration.resume import NothingToResume, resume
from interlock.workers.orchestration.submission import Run, checked, submit, write
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import AlreadyExists, BadInput, UnknownInstance
from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.read import read_plan
from tests import repositories
from tests.driving import drain_all, state
from tests.working import hire, settle, states, work

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples" / "plans"
MANY, SECONDS = 10_000, 90.0  # it takes five on a slow machine
Dba = psycopg.Connection[tuple[Any, ...]]
Submit = Callable[..., Run]


@pytest.fixture
def submitted(runtime: Runtime, tmp_path: Path) -> Submit:
    """Submits a plan, read or as text, from a folder of this test's own."""

    def do(plan: Plan | str, **given: Any) -> Run:
        read = read_plan(plan) if isinstance(plan, str) else plan
        arguments: dict[str, Any] = {"by": "ann", "directory": tmp_path, **given}
        return submit(runtime, read, **arguments)

    return do


def plan_of(*workstreams: str, more: str = "") -> str:
    return f"name: p\n{more}\nworkstreams:\n" + "\n".join(f"  - {{{each}}}" for each in workstreams)


def tasks(*names: str) -> str:
    return "tasks: [" + ", ".join(f"{{id: {name}, command: [x]}}" for name in names) + "]"


def rows(dba: Dba, type_: str) -> dict[str, dict[str, Any]]:
    """The plan's name -> context with id, entity_id and, as `run`, the command of every instance of a type."""
    found = dba.execute(
        "SELECT i.context->>'name', i.context, i.id, i.entity_id, to_jsonb(c) FROM workflow_instances i"
        " LEFT JOIN commands c ON c.workflow_id = i.id WHERE i.workflow_type = %s",
        (type_,),
    )
    return {
        name: context | {"id": str(id_), "entity_id": entity_id, "run": command}
        for name, context, id_, entity_id, command in found
    }


def count(dba: Dba) -> list[int]:
    names = ("workflow_instances", "trigger_requests", "plans", "patches", "run_signals", "workflow_links", "phases")
    return [dba.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names]  # type: ignore[index]


# What is written --------------------------------------------------------------------------------------------------


def test_hello_is_born_whole_and_started(submitted: Submit, client: Client, dba: Dba, tmp_path: Path) -> None:
    plan = read_plan((EXAMPLES / "hello.yaml").read_bytes())
    run = submitted(plan, priority=7)
    assert run.project == client.project
    assert dba.execute("SELECT run_id, state, priority, phase_id FROM runs").fetchall() == [
        (run.id, "pending", 7, "default")
    ]
    found = rows(dba, "task")
    assert set(found) == {"greet/hello", "greet/world", "greet/goodbye"}
    goodbye = found["greet/goodbye"]
    assert goodbye["entity_id"] == f"{run.name}/greet/goodbye"
    assert (goodbye["kind"], goodbye["run"]["argv"]) == ("command", ["echo", "Goodbye"])
    assert goodbye["depends_on"] == [found["greet/hello"]["id"], found["greet/world"]["id"]]
    assert goodbye["required_capabilities"] == ["interlock:execute"]
    ((kept, directory),) = dba.execute("SELECT body, directory FROM plans WHERE run_id = %s", (run.id,)).fetchall()
    assert Plan.model_validate(kept) == plan
    assert directory == str(tmp_path)
    drain_all(client.runtime)
    assert state(client, run.id) == "running"


def test_a_task_that_is_told_no_terms_gets_those_of_the_settings_at_its_birth(
    make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path, project: str
) -> None:
    """TASK-8: both are settings. A plan's task and one that is created alone are filled in alike, and say so."""
    chosen = make_runtime(task_retries=1, task_timeout_seconds=7.5)
    said = "tasks: [{id: told, shell: x, retries: 0, timeout: 9}, {id: left, shell: x}]"
    plan = plan_of(f"id: w, {said}, gates: [{{id: g, type: LINT, shell: x}}]")
    submit(chosen, read_plan(plan), by="ann", directory=tmp_path)
    workstream = rows(dba, "workstream")["w"]["id"]
    create = partial(Client(chosen).create, "task", project=project)
    create("alone", context={"name": "alone", "workstream_id": workstream, "timeout_sec": None})
    create("own", context={"name": "own", "workstream_id": workstream, "max_retries": 5, "timeout_sec": 2})
    expected = {"w/told": (0, 9.0), "w/left": (1, 7.5), "alone": (1, 7.5), "own": (5, 2.0)}
    found = rows(dba, "task")
    assert {name: (each["max_retries"], each["timeout_sec"]) for name, each in found.items()} == expected
    typed = dba.execute("SELECT task_id::text, max_retries, timeout_sec FROM tasks").fetchall()
    assert {id_: terms for id_, *terms in typed} == {found[name]["id"]: [*terms] for name, terms in expected.items()}
    (gate,) = rows(dba, "test_gate").values()
    assert (gate["timeout_sec"], "max_retries" in gate) == (1800, False)


def test_a_workstream_is_told_of_each_of_its_gates_that_its_end_waits_for(submitted: Submit, dba: Dba) -> None:
    def gate(name: str, more: str = "") -> str:
        return f"{{id: {name}, type: LINT, command: [x]{more}}}"

    own, last, theirs = gate("own", ", blocks: [a]"), gate("last"), gate("theirs", ", blocks: [two/b]")
    submitted(plan_of(f"id: one, {tasks('a')}, gates: [{own}, {last}, {theirs}]", f"id: two, {tasks('b')}"))
    gates, workstreams = rows(dba, "test_gate"), rows(dba, "workstream")
    assert workstreams["one"]["gates"] == [gates[f"one/{name}"]["id"] for name in ("last", "theirs")]
    assert workstreams["two"]["gates"] == []


def test_delivery_says_everything_where_tables_guards_and_workers_look(
    submitted: Submit, dba: Dba, tmp_path: Path
) -> None:
    repositories.make(tmp_path / "my-project")
    run = submitted(read_plan((EXAMPLES / "delivery.yaml").read_bytes()), directory=tmp_path)
    workstreams, found, gates = (rows(dba, each) for each in ("workstream", "task", "test_gate"))
    for each in [*workstreams.values(), *found.values(), *gates.values(), *rows(dba, "run").values()]:
        assert each["run_id"] == str(run.id)
        named = each["name"] in ("document",) or each["name"].startswith("document/")
        assert each["phase_id"] == ("default" if named else "PH-002")
    fix, document = workstreams["fix"], workstreams["document"]
    assert (fix["is_critical"], fix["task_count"], fix["title"]) == (True, 2, "The fix itself")
    assert fix["gates"] == [gates["fix/audit"]["id"]]
    assert (document["depends_on"], document["affinity"]) == ([fix["id"]], [])
    install = found["fix/install"]
    assert (install["max_retries"], install["tool"], install["timeout_sec"]) == (5, "package-index", 600)
    assert install["backoff"] == {"base": 2.0, "factor": 2.0, "cap": 60.0}
    assert install["run"]["env"] == {"PYTHONDONTWRITEBYTECODE": "1"}
    assert install["required_capabilities"] == ["python", "interlock:execute"]
    rounding = found["fix/rounding"]
    assert rounding["kind"] == "patch"
    assert rounding["run"]["message"] == "Round half to even, as the ledger does"
    assert rounding["blocked_by_gates"] == [gates["fix/clean"]["id"]]
    assert rounding["gates"] == [gates["fix/lint"]["id"], gates["fix/unit"]["id"]]
    ((patch_id, body, by),) = dba.execute("SELECT patch_id, body, created_by FROM patches").fetchall()
    assert (patch_id, by) == (rounding["run"]["patch_id"], "ann")
    assert body.startswith("diff --git a/src/money.py")
    explain = found["document/explain"]
    assert explain["agent"]["inputs"] == {"audience": "accountants", "longest_words": 600}
    assert explain["required_capabilities"] == ["prose", "interlock:agent"]
    assert explain["affinity"] == ["writer", "agent"]
    spell = found["document/spell"]
    assert (spell["expected_exit_codes"], spell["run"]["limits"]) == (
        [0, 65],
        {"memory": 512 * 1024**2, "cpu_seconds": 60},
    )
    announce = found["document/announce"]
    assert (announce["run"]["kind"], announce["run"]["argv"]) == ("shell", ['echo "documented" >> changes.log'])
    assert (announce["priority"], announce["depends_on"]) == (-10, [spell["id"], rounding["id"]])
    moments = {name: each["moment"] for name, each in gates.items()}
    assert moments == {"fix/clean": "start", "fix/lint": "task", "fix/unit": "task", "fix/audit": "final"}
    assert gates["fix/unit"]["reruns_left"] == 1
    assert gates["fix/unit"]["depends_on"] == [gates["fix/lint"]["id"]]
    assert gates["fix/audit"]["run"]["kind"] == "shell"
    ((tool, threshold, cooldown),) = dba.execute(
        "SELECT tool_id, failure_threshold, cooldown_seconds FROM circuit_breakers"
    ).fetchall()
    assert (tool, threshold, cooldown) == ("package-index", 3, 120)


def test_the_tables_and_links_say_the_same_as_the_contexts(submitted: Submit, dba: Dba, tmp_path: Path) -> None:
    repositories.make(tmp_path / "my-project")
    submitted(read_plan((EXAMPLES / "delivery.yaml").read_bytes()), directory=tmp_path)
    typed = dba.execute("SELECT task_id::text, depends_on::text[], gate_dependencies::text[], unmet, kind FROM tasks")
    by_id = {each["id"]: each for each in rows(dba, "task").values()}
    for id_, depends_on, gates, unmet, kind in typed:
        said = by_id[id_]
        assert (depends_on, gates, kind) == (said["depends_on"], said["gates"], said["kind"])
        assert unmet == len(said["depends_on"]) + len(said["blocked_by_gates"])
        linked = dba.execute("SELECT role, target_id::text FROM workflow_links WHERE source_id = %s", (id_,)).fetchall()
        roles = ("depends_on", "gates", "blocked_by_gates")
        assert sorted(linked) == sorted((role, target) for role in roles for target in said[role])


def test_a_skipped_workstream_is_skipped_before_anything_of_it_begins(submitted: Submit, client: Client) -> None:
    run = submitted(plan_of(f"id: a, skip: true, {tasks('t')}", f"id: b, {tasks('t')}"))
    settle(client, run.id)
    assert states(client, run.id, "workstream") == {"a": "skipped", "b": "ready"}
    assert states(client, run.id) == {"a/t": "cancelled", "b/t": "queued"}


def test_long_names_are_shortened_and_stay_apart(submitted: Submit, dba: Dba) -> None:
    long = "w" * 59
    run = submitted(
        plan_of(*(f"id: {long}{end}, {tasks('t' * 60, 't' * 59 + 's')}" for end in "ab")), run_name="r" * 60
    )
    found = [each["entity_id"] for type_ in ("task", "workstream") for each in rows(dba, type_).values()]
    assert len(set(found)) == 6
    assert all(len(each) <= LONGEST_ENTITY and each.startswith(run.name[:40]) for each in found)


def test_two_runs_share_patches_and_breakers_which_are_as_the_last_plan_says(
    submitted: Submit, dba: Dba, tmp_path: Path
) -> None:
    repositories.make(tmp_path / "code")
    (tmp_path / "a.patch").write_text("diff --git a/x b/x\n")
    plans = [
        plan_of(
            "id: w, tasks: [{id: a, patch: a.patch, tool: net}]",
            more=f"repository: {{path: code}}\ntools: {{net: {configuration}}}",
        )
        for configuration in ("{failure_threshold: 2}", "{cooldown_seconds: 3m, success_threshold: 4}")
    ]
    names, found = set(), []
    for plan in plans:
        names.add(submitted(plan).name)
        found += dba.execute(
            "SELECT failure_threshold, cooldown_seconds, success_threshold FROM circuit_breakers"
        ).fetchall()
    assert len(names) == 2
    assert dba.execute("SELECT count(*) FROM patches").fetchone() == (1,)
    assert found == [(2, 60, 1), (5, 180, 4)]
    ((by, reason, old, new),) = dba.execute(
        "SELECT configured_by, reason, old_cooldown_seconds, cooldown_seconds FROM breaker_configurations"
    ).fetchall()
    assert (by, old, new) == ("ann", 60, 180)
    assert any(reason == f"configured by the plan of run {name}" for name in names)


def test_what_a_plan_leaves_out_of_a_tool_is_as_the_settings_say(
    make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path
) -> None:
    runtime = make_runtime(breaker_failure_threshold=2, breaker_cooldown_seconds=7.5, breaker_success_threshold=3)
    plan = plan_of(f"id: w, {tasks('a')}", more="tools: {net: {cooldown_seconds: 9}}")
    submit(runtime, read_plan(plan), by="ann", directory=tmp_path)
    row = dba.execute("SELECT failure_threshold, cooldown_seconds, success_threshold FROM circuit_breakers").fetchone()
    assert row == (2, 9, 3)


def read(dba: Dba) -> int:
    """Rows of tables that were read, by going through them or by an index."""
    (rows,) = dba.execute(
        "SELECT sum(seq_tup_read + COALESCE(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables"
        " WHERE schemaname = 'interlock'"
    ).fetchone() or (0,)
    return int(rows)


def submit_in_seconds(submitted: Submit, dba: Dba, many: int) -> None:
    for number in range(10):  # PostgreSQL now keeps plans for small tables
        submitted(read_plan(plan_of("id: w, tasks: [{id: t, command: [x]}]")), run_name=f"small-{number}")
    (small,) = dba.execute("SELECT count(*) FROM tasks").fetchone() or ()
    each = many // 10
    # Written last to first: each waits for one that is written, and born, after it.
    chain = ", ".join(
        f"{{id: t{n}, command: [x], depends_on: [{f't{n - 1}' if n else ''}]}}" for n in reversed(range(each))
    )
    plan = read_plan(plan_of(*(f"id: w{n}, tasks: [{chain}]" for n in range(10))))
    before, began = read(dba), monotonic()
    submitted(plan)
    seconds = monotonic() - began
    assert read(dba) - before < 100 * many  # thirty a task; with a plan for small tables each reads all before it
    assert seconds < SECONDS
    assert dba.execute("SELECT count(*), sum(unmet) FROM tasks").fetchone() == (many + small, many - 10)
    assert dba.execute("SELECT count(*) FROM workflow_links").fetchone() == (many - 10,)


def test_ten_thousand_tasks_are_submitted_in_seconds(submitted: Submit, dba: Dba) -> None:
    submit_in_seconds(submitted, dba, MANY)


def seen_empty(dba: Dba) -> int:
    """How many of three tables have pages, in which PostgreSQL found no rows."""
    (tables,) = dba.execute(
        "SELECT count(*) FROM pg_class WHERE relname IN ('workflow_instances', 'tasks', 'commands')"
        " AND relpages > 0 AND reltuples = 0"
    ).fetchone() or (0,)
    return int(tables)


def test_a_run_is_submitted_in_seconds_where_statistics_know_of_no_rows(
    runtime: Runtime, submitted: Submit, dba: Dba, tmp_path: Path, project: str
) -> None:
    """As after a large plan that was rolled back: tables have pages, and PostgreSQL expects one row in them all."""
    many = MANY // 8
    plan = read_plan(plan_of("id: w, " + tasks(*(f"t{n}" for n in range(many)))))
    wanted = checked(runtime, plan, project=project, by="ann", directory=tmp_path, priority=0)
    while seen_empty(dba) < 3:  # autovacuum may take the pages away meanwhile
        with runtime.database.connect() as connection:
            write(runtime, connection, wanted)
            connection.rollback()
        dba.execute("ANALYZE")
    try:
        submit_in_seconds(submitted, dba, many)
    finally:
        dba.execute("ANALYZE")  # later tests use this database


# What is refused --------------------------------------------------------------------------------------------------

PATCH = "id: w, tasks: [{{id: a, patch: {{file: {}}}}}]"
REPOSITORY = "repository: {path: code}"


@pytest.mark.parametrize(
    ("plan", "given", "naming"),
    [
        (plan_of(f"id: w, {tasks('a')}", more="repository: {path: nowhere}"), {}, "nowhere does not exist"),
        (plan_of(f"id: w, {tasks('a')}", more="repository: {path: .}"), {}, "not a usable git repository"),
        (plan_of(f"id: w, {tasks('a')}", more="repository: {path: code, base_branch: x}"), {}, "no branch 'x'"),
        (
            plan_of(f"id: w, {tasks('a')}", more="repository: {path: code, base_branch: 'a b'}"),
            {},
            "not a valid branch name",
        ),
        (plan_of(PATCH.format("none.patch"), more=REPOSITORY), {}, "w/a: patch none.patch is not a file"),
        (plan_of(PATCH.format("../x.patch"), more=REPOSITORY), {}, "outside"),
        (plan_of(PATCH.format("/etc/passwd"), more=REPOSITORY), {}, "outside"),
        (plan_of(PATCH.format("link.patch"), more=REPOSITORY), {}, "outside"),
        (plan_of(PATCH.format("loop.patch"), more=REPOSITORY), {}, "loop.patch"),
        (plan_of(PATCH.format("empty.patch"), more=REPOSITORY), {}, "is empty"),
        (plan_of(PATCH.format("huge.patch"), more=REPOSITORY), {}, "1,000,000 bytes"),
        (plan_of(PATCH.format("latin.patch"), more=REPOSITORY), {}, "not UTF-8"),
        (plan_of(f"id: w, {tasks('a')}"), {"run_name": "taken"}, "has a run named taken"),
        (plan_of(f"id: w, {tasks('a')}"), {"run_name": "a/b"}, "a/b"),
        (plan_of(f"id: w, {tasks('a')}"), {"run_name": "new\n"}, "letters"),
        (plan_of(f"id: w, {tasks('a')}"), {"priority": 1001}, "1,001"),
        (plan_of(f"id: w, {tasks('a')}"), {"by": ""}, "by must be"),
        (plan_of("id: w, tasks: [{id: a, shell: " + "x" * 300_000 + "}]"), {}, "262,144"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
def test_nothing_is_written_of_what_is_refused(
    submitted: Submit, dba: Dba, tmp_path: Path, plan: str, given: dict[str, Any], naming: str
) -> None:
    repositories.make(tmp_path / "code")
    (tmp_path / "link.patch").symlink_to("/etc/passwd")
    (tmp_path / "loop.patch").symlink_to("loop.patch")
    (tmp_path / "empty.patch").write_text("\n")
    (tmp_path / "huge.patch").write_text("x" * 1_000_001)
    (tmp_path / "latin.patch").write_bytes(b"+\xe9\n")
    submitted(plan_of(f"id: w, {tasks('a')}"), run_name="taken")
    before = count(dba)
    with pytest.raises((BadInput, AlreadyExists)) as refused:
        submitted(plan, **given)
    assert naming in str(refused.value)
    assert count(dba) == before


# Taken up again ---------------------------------------------------------------------------------------------------

THREE = plan_of(
    f"id: one, {tasks('a')}",
    "id: two, depends_on: [one], tasks: [{id: b, command: [x], retries: 0, critical: true, depends_on: [one/a]}, "
    "{id: c, command: [x]}]",
    f"id: three, depends_on: [two], {tasks('d')}",
)


def failed(client: Client, submitted: Submit) -> Run:
    """A run of THREE of which only `one` completed."""
    run = submitted(THREE)
    work(client, run.id, hire(client, run.project, f"w-{uuid4().hex[:6]}"), failing={"two/b"})
    assert states(client, run.id, "workstream") == {"one": "completed", "two": "failed", "three": "cancelled"}
    assert state(client, run.id) == "failed"
    return run


def test_a_resumed_run_does_what_was_not_completed(submitted: Submit, client: Client, dba: Dba) -> None:
    old = failed(client, submitted)
    new = resume(client.runtime, old.name, by="bob")
    settle(client, new.id)
    assert states(client, new.id, "workstream") == {"one": "skipped", "two": "ready", "three": "blocked"}
    assert set(states(client, new.id)) == {"two/b", "two/c", "three/d"}
    work(client, new.id, hire(client, new.project))
    assert state(client, new.id) == "succeeded"
    assert states(client, new.id, "workstream") == {"one": "skipped", "two": "completed", "three": "completed"}
    links = dba.execute(
        "SELECT s.workflow_type, count(*) FROM workflow_links l JOIN workflow_instances s ON s.id = l.source_id"
        " WHERE l.role = 'retry_of' GROUP BY 1"
    ).fetchall()
    assert dict(links) == {"run": 1, "workstream": 3, "task": 3}


def test_what_was_carried_over_once_is_carried_over_again(submitted: Submit, client: Client, dba: Dba) -> None:
    old = failed(client, submitted)
    one = next(each["id"] for each in rows(dba, "workstream").values() if each["name"] == "one")
    second = resume(client.runtime, old.name, by="bob")
    work(client, second.id, hire(client, second.project), failing={"two/b"})
    assert state(client, second.id) == "failed"
    third = resume(client.runtime, second.name, by="bob")
    settle(client, third.id)
    carried = dba.execute(
        "SELECT context->>'carried_from' FROM workflow_instances WHERE workflow_type = 'workstream'"
        " AND context->>'run_id' = %s AND context->>'name' = 'one'",
        (str(third.id),),
    ).fetchone()
    assert carried == (one,)
    work(client, third.id, hire(client, third.project, "worker-3"))
    assert state(client, third.id) == "succeeded"


def test_a_patch_is_landed_again_though_its_file_is_gone(
    submitted: Submit, client: Client, dba: Dba, tmp_path: Path
) -> None:
    repositories.make(tmp_path / "code")
    (tmp_path / "a.patch").write_text("diff --git a/x b/x\n")
    old = submitted(plan_of(PATCH.format("a.patch"), more=REPOSITORY))
    (tmp_path / "a.patch").unlink()
    client.fire(old.id, "cancel", by="ann")
    drain_all(client.runtime)
    new = resume(client.runtime, old.name, by="ann")
    found = dba.execute("SELECT patch_id FROM commands WHERE run_id = %s", (new.id,)).fetchone()
    assert found == dba.execute("SELECT patch_id FROM patches").fetchone()


def test_only_what_failed_or_was_canceled_is_resumed(submitted: Submit, client: Client, project: str) -> None:
    with pytest.raises(UnknownInstance, match="there is no run 'nobody'"):
        resume(client.runtime, "nobody", by="ann")
    client.create("story", "S-1", project=project)
    with pytest.raises(UnknownInstance):
        resume(client.runtime, "S-1", by="ann")
    run = submitted(plan_of(f"id: w, {tasks('a')}"))
    for expected in ("pending", "running"):
        with pytest.raises(NothingToResume, match=f"is {expected}"):
            resume(client.runtime, run.name, by="ann")
        drain_all(client.runtime)
    client.create("run", "bare", project=project)
    with pytest.raises(NothingToResume, match="without a plan"):
        resume(client.runtime, "bare", by="ann")


def test_the_same_plan_says_the_same_however_often_it_is_kept(submitted: Submit, dba: Dba, tmp_path: Path) -> None:
    repositories.make(tmp_path / "my-project")
    plan = read_plan((EXAMPLES / "delivery.yaml").read_bytes())
    run = submitted(plan, directory=tmp_path)
    (body,) = dba.execute("SELECT body FROM plans WHERE run_id = %s", (run.id,)).fetchone() or ()
    assert json.loads(Plan.model_validate(body).model_dump_json()) == body
