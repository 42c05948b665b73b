"""A landed patch that breaks a later gate is found, its rollback proposed, and made only by whom that is allowed."""

import json
import re
import shlex
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import psycopg
import pytest
from rich.console import Console
from sqlalchemy import RowMapping

from interlock.cli.runs.tree import draw
from interlock.cli.runs.watch import print_lines
from interlock.db.audit import verify
from interlock.db.connection import transaction
from interlock.db.core import effects
from interlock.supervisor.environment import environment
from interlock.workers import effect_runner
from interlock.workers.client.client import Client
from interlock.workers.orchestration.resume import resume
from interlock.workers.orchestration.run_view import Watch
from interlock.workers.orchestration.submission import Run, submit
from interlock.workers.pool import work_loop
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import NotYours
from interlock.workflows.plan.read import read_plan
from tests.archived import archive, expire_timers
from tests.callers import FORKS
from tests.crewing import hand
from tests.driving import drain_all, state, trail
from tests.integration.test_effect_kills import run_and_die
from tests.repositories import FILES, diff, everything, git, killing, make, put
from tests.rights import known
from tests.stuck import found, terminal
from tests.waiting import eventually
from tests.working import settle

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
SETTINGS = {"max_attempts": 3}
GATES: Mapping[str, list[str] | str] = {"sound": "grep -q five app.py && ! test -e spoilt"}
REGRESSIONS = "SELECT id FROM workflow_instances WHERE workflow_type = 'regression' ORDER BY id"
PATCHES: Mapping[str, dict[str, str | None]] = {
    "first": {"first": "x\n"},
    "broken": {"app.py": "one\n"},
    "last": {"last": "x\n"},
}


@cache
def patch(name: str) -> str:
    """One of `PATCHES`, which git is asked for once in a process."""
    with TemporaryDirectory() as folder:
        return diff(make(Path(folder) / "repo"), PATCHES[name])


class AssemblyLine:
    """Carries out plans whose workstreams land one after another; then gates look at the base branch."""

    def __init__(self, runtime: Runtime, dba: Dba, folder: Path) -> None:
        self.runtime, self.dba, self.folder = runtime, dba, folder
        self.checkout = make(folder / "repo")
        self.hand = known(hand(runtime))

    @property
    def client(self) -> Client:
        return Client(self.runtime)

    def run(
        self,
        *names: str,
        gates: Mapping[str, list[str] | str] = GATES,
        by: str = "ann",
        without: str = "",
        reruns: int = 0,
        **repository: Any,
    ) -> Run:
        """Land these patches in this order, then run the gates; do all that follows by itself."""
        landing = []
        for place, name in enumerate(names):
            (self.folder / name).write_text(patch(name))
            task = {"id": "t", "patch": name}
            landing.append({"id": name, "tasks": [task], "depends_on": list(names[:place])})
        check = {
            "id": "check",
            "depends_on": list(names),
            "tasks": [{"id": "t", "command": ["true"], "gates": list(gates)}],
            "gates": [
                {
                    "id": id_,
                    "type": "INTEGRATION",
                    "shell" if isinstance(words, str) else "command": words,
                    "reruns": reruns,
                }
                for id_, words in gates.items()
            ],
        }
        plan = {"name": "p", "repository": {"path": "repo", **repository}, "workstreams": [*landing, check]}
        self.made = submit(self.runtime, read_plan(json.dumps(plan)), by=by, directory=self.folder)
        self.watch = Watch(self.runtime, self.made.id)
        self.work(self.made, without)
        return self.made

    def work(self, run: Run, without: str = "") -> None:
        done = 1
        while done:
            settle(self.client, run.id)
            done = self.act(without)
            done += work_loop.work(self.runtime, self.hand)
            drain_all(self.runtime)

    def act(self, without: str = "") -> int:
        """Run the effects that are due, except one kind; how many they were."""
        due = [row["id"] for row in self.due() if row["name"] != without]
        for each in due:
            effect_runner.run(self.runtime, each)
        return len(due)

    def due(self) -> list[RowMapping]:
        with transaction(self.runtime.database) as connection:
            return list(effects.due(connection, limit=100))

    def decide(self, regression: UUID, trigger: str, without: str = "") -> None:
        """Decide as the operator ann, and do what follows."""
        self.client.fire(regression, trigger, by="ann", data={"reason": "because"})
        self.follow(without)

    def enter(self, command: str) -> None:
        """Run a suggested command as the operator ann, while workers apply what it fires."""
        words = shlex.split(command.replace("$(id -un)", "ann"))[1:]
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(terminal(self.runtime).run, *words)
            eventually(lambda: drain_all(self.runtime) == 0 and answer.done(), timeout=60)
        assert answer.result().code == 0, answer.result().said
        self.follow()

    def tree(self, run: Run) -> str:
        """A run as `interlock run show` draws it."""
        console = Console(file=StringIO(), width=250)
        with console.capture() as captured:
            console.print(draw(Watch(self.runtime, run.id).view, lines=100))
        return captured.get()

    def follow(self, without: str = "") -> None:
        drain_all(self.runtime)
        while self.act(without):
            drain_all(self.runtime)

    def kill(self, at: int, programs: Path) -> None:
        """Run the effect that is due in a process that is killed at its `at`-th git command, or before its report."""
        (due,) = self.due()
        env = environment(self.runtime.settings) | {"PATH": killing(programs, at)}
        victim = FORKS.Process(target=run_and_die, args=(env, due["id"]))
        victim.start()
        victim.join()
        assert victim.exitcode == -signal.SIGKILL

    def again(self) -> None:
        """Take back what dead nodes held, and do everything that is to be tried again."""
        self.dba.execute("UPDATE effects SET lease_until = now() - interval '1 s' WHERE status = 'leased'")
        with transaction(self.runtime.database) as connection:
            effects.expire_leases(
                connection, max_attempts=self.runtime.settings.max_attempts, own_attempts={}, limit=100
            )
        self.dba.execute("UPDATE effects SET not_before = now() WHERE status = 'pending'")
        self.follow()

    def regressions(self) -> list[UUID]:
        return [id_ for (id_,) in self.dba.execute(REGRESSIONS)]

    def said(self, ref: UUID) -> dict[str, Any]:
        return dict(self.client.history(ref)[-1]["metadata"])


@pytest.fixture
def line(make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path) -> AssemblyLine:
    return AssemblyLine(make_runtime(**SETTINGS), dba, tmp_path)


def begin(runtime: Runtime, dba: Dba, folder: Path) -> AssemblyLine:
    """`begun`: three patches have landed, of which the second broke the gate; it is still to be found."""
    line = AssemblyLine(runtime, dba, folder)
    line.run("first", "broken", "last", without="find_culprit")
    return line


def blamed(line: AssemblyLine, regression: UUID) -> UUID:
    (patch,) = [each["id"] for each in line.client.show(regression)["links"] if each["role"] == "culprit"]
    return UUID(str(patch))


@pytest.mark.promise("O13")
def test_a_landed_patch_that_breaks_a_later_gate_is_found_approved_and_taken_back(begun: AssemblyLine) -> None:
    run = begun.made
    begun.follow()
    (regression,) = begun.regressions()
    assert state(begun.client, regression) == "proposed"
    assert state(begun.client, f"{run.name}/check/sound") == "FAILED", "the gate's name stays unambiguous"
    evidence = begun.said(regression)
    assert (evidence["patch"], evidence["gate"]) == (f"{run.name}/broken/t^1", "check/sound")
    assert git(begun.checkout, "show", f"{evidence['commit_sha']}:app.py") == "one\n"
    (approve,) = re.findall(r"roll it back: (.*WHY)", begun.tree(run))
    before = everything(begun.checkout)
    with pytest.raises(NotYours, match="operator"):
        begun.client.fire(regression, "approve", by="mallory", data={"reason": "because"})
    assert (begun.act(), everything(begun.checkout)) == (0, before)
    begun.enter(f"{approve} --by ann")
    patch = blamed(begun, regression)
    assert (state(begun.client, regression), state(begun.client, patch)) == ("rolled_back", "rolled_back")
    assert (begun.checkout / "app.py").read_text() == FILES["app.py"]
    assert (begun.checkout / "last").exists()
    told = begun.said(patch)
    assert (told["authorized_by"], told["reason"]) == (
        "ann",
        f"it broke gate check/sound (regression {run.name}/check/sound:regression)",
    )
    assert [each["action"] for each in told["compensation"]["actions"]][1] == "run_tests check/sound"
    states = begun.dba.execute("SELECT state FROM workstreams WHERE run_id = %s ORDER BY ws_id", (run.id,)).fetchall()
    assert states == [("completed",)] * 3 + [("failed",)], "what has ended stays as it ended"


@pytest.mark.promise("O13")
def test_whoever_watches_a_run_that_may_not_take_back_sees_its_regressions_and_what_to_type(
    line: AssemblyLine, capsys: pytest.CaptureFixture[str]
) -> None:
    line.run("broken", by="agent-7", regressions="roll_back", without="find_culprit")
    moves = line.watch.look()
    assert [(each.name, each.was, each.state) for each in moves if each.kind == "regression"] == [
        ("check/sound", None, "searching")
    ]
    assert (line.watch.view.ended, line.watch.view.settled) == (True, False), "the search goes on"
    line.follow()
    (proposed,) = line.watch.look()
    assert (proposed.was, proposed.state, proposed.trigger) == ("searching", "proposed", "culprit_found")
    (regression,) = line.regressions()
    assert "because agent-7, who submitted the plan, is none" in line.said(regression)["reason"]
    assert line.watch.view.settled
    print_lines(line.watch.view, [proposed])
    said = capsys.readouterr().out
    assert "regression of gate check/sound: searching → proposed  patch " in said
    (approve,) = re.findall(r"roll it back: (.*WHY)", said)
    line.enter(f"{approve} --by ann")
    assert [each.state for each in line.watch.look() if each.kind == "regression"] == ["rolling_back", "rolled_back"]


@pytest.mark.promise("O13")
def test_a_plan_that_an_operator_submitted_may_allow_it(line: AssemblyLine) -> None:
    line.run("broken", regressions="roll_back")
    (regression,) = line.regressions()
    assert trail(line.client, regression) == ["roll_back_allowed", "roll_back_succeeded"]
    assert line.said(blamed(line, regression))["authorized_by"] == "ann"
    assert (line.checkout / "app.py").read_text() == FILES["app.py"]


def test_one_patch_is_proposed_for_all_gates_that_it_broke_and_none_for_one_that_passes_again(
    line: AssemblyLine,
) -> None:
    flaky = "pwd | grep -q regression"  # it passes in the worktree of the search
    line.run("broken", gates={**GATES, "also": ["grep", "-q", "six", "app.py"], "flaky": flaky})
    ends = {line.client.show(each)["context"]["gate"]: each for each in line.regressions()}
    found = {gate: (state(line.client, each), line.said(each).get("reason", "")) for gate, each in ends.items()}
    (judged,) = [gate for gate, (end, _) in found.items() if end == "proposed"]
    (other,) = {"check/sound", "check/also"} - {judged}
    assert found[other][0] == found["check/flaky"][0] == "unexplained"
    assert "has found it already" in found[other][1]
    assert "the gate does not fail at" in found["check/flaky"][1]


def test_nothing_is_looked_for_if_the_plan_says_so_or_nothing_has_landed(line: AssemblyLine) -> None:
    line.run("broken", regressions="ignore")
    assert line.regressions() == []
    line.run(gates={"never": ["false"]})
    assert line.regressions() == []


def test_a_rollback_that_does_not_mend_the_gate_changes_nothing(begun: AssemblyLine) -> None:
    begun.follow()
    (regression,) = begun.regressions()
    put(begun.checkout, {"spoilt": "x\n"})
    git(begun.checkout, "add", "-A")
    git(begun.checkout, "commit", "-qm", "Break it once more")
    before = everything(begun.checkout)
    begun.decide(regression, "approve")
    while state(begun.client, regression) == "rolling_back":
        begun.again()
    assert "run_tests check/sound" in begun.said(regression)["reason"]
    assert state(begun.client, regression) == "failed"
    assert state(begun.client, blamed(begun, regression)) == "committed"
    assert everything(begun.checkout) == before


def test_what_a_killed_node_left_is_done_by_another(begun: AssemblyLine, tmp_path: Path) -> None:
    (regression,) = begun.regressions()
    begun.kill(25, tmp_path / "searching")
    assert state(begun.client, regression) == "searching"
    begun.again()
    assert state(begun.client, regression) == "proposed"
    begun.decide(regression, "approve", without="roll_back_culprit")
    begun.kill(10_000, tmp_path / "rolling-back")  # before its report
    begun.again()
    assert trail(begun.client, regression) == ["culprit_found", "approve", "roll_back_succeeded"]
    subjects = git(begun.checkout, "log", "--first-parent", "--format=%s", "main").splitlines()
    assert len([each for each in subjects if each.startswith("Revert")]) == 1
    assert git(begun.checkout, "worktree", "list").count("\n") == 1
    assert [each["to_state"] for each in begun.client.history(blamed(begun, regression))][-2:] == [
        "committed",
        "rolled_back",
    ]


def cancelled(line: AssemblyLine, run: Run) -> None:
    """Cancel a run, and do what follows."""
    line.client.fire(run.id, "cancel", by="ann")
    settle(line.client, run.id)
    line.work(run)
    assert state(line.client, run.id) == "canceled"


def test_a_gate_whose_rerun_never_came_is_looked_into(line: AssemblyLine) -> None:
    """REGRESSION-1."""
    run = line.run("broken", without="run_gate", reruns=2)
    (gate,) = line.due()
    effect_runner.run(line.runtime, gate["id"])
    drain_all(line.runtime)
    settle(line.client, run.id)
    assert state(line.client, f"{run.name}/check/sound") == "FAILED"
    assert line.regressions() == [], "it is run again first"
    cancelled(line, run)
    (regression,) = line.regressions()
    assert state(line.client, regression) == "proposed"
    assert line.said(regression)["patch"] == f"{run.name}/broken/t^1"


def test_a_patch_that_an_earlier_run_landed_is_found_and_may_stay_and_the_runs_are_archived_together(
    line: AssemblyLine, dba: Dba
) -> None:
    """REGRESSION-1."""
    first = line.run("broken", without="run_gate")
    cancelled(line, first)
    assert line.regressions() == [], "the gate never ran"
    again = resume(line.runtime, first.name, by="ann")
    line.work(again)
    (regression,) = line.regressions()
    assert state(line.client, regression) == "proposed"
    assert line.said(regression)["patch"] == f"{first.name}/broken/t^1"
    assert f"regression of gate {line.client.show(regression)['context']['gate']}" in line.tree(again)
    before = everything(line.checkout)
    line.enter(found(line.runtime, regression, everything=True).command.replace("approve", "reject"))
    assert (state(line.client, regression), state(line.client, blamed(line, regression))) == ("rejected", "committed")
    assert everything(line.checkout) == before
    expire_timers(dba)
    assert dict(archive(line.runtime).held) == {}
    moved = ("run", "workstream", "task", "test_gate", "patch_ledger", "regression")
    left = dba.execute(
        "SELECT DISTINCT workflow_type FROM workflow_instances WHERE workflow_type = ANY(%s)", ([*moved],)
    )
    assert left.fetchall() == []
    shown = line.client.show(regression)
    assert (shown["current_state"], {each["role"] for each in shown["links"]}) == ("rejected", {"run", "culprit"})
    assert verify.verify(line.runtime.database).ok
