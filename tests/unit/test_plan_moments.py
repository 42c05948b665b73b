"""When gates run: never before what they judge, never so late that something waits for ever."""

import pytest

from interlock.workflows.plan.gate_timing import Moments, moments
from interlock.workflows.plan.problems import PlanInvalid
from interlock.workflows.plan.read import read_plan
from interlock.workflows.plan.remaining import rest


def moments_of(tasks: str, gates: str) -> Moments:
    return moments(read_plan(f"name: p\nworkstreams: [{{id: w, tasks: [{tasks}], gates: [{gates}]}}]"))


def task(name: str, more: str = "") -> str:
    return f"{{id: {name}, command: [x]{', ' + more if more else ''}}}"


def gate(name: str, more: str = "") -> str:
    return f"{{id: {name}, type: UNIT, command: [x]{', ' + more if more else ''}}}"


@pytest.mark.parametrize(
    ("tasks", "gates", "moment", "after"),
    [
        (task("a"), gate("g"), "final", ()),
        (task("a", "gates: [g]"), gate("g"), "task", ("w/g",)),
        (task("a"), gate("g", "blocks: [a]"), "start", ()),
        (task("a"), gate("g") + ", " + gate("h", "blocks: [a], depends_on: [g]"), "start", ()),
        (task("a"), gate("g") + ", " + gate("h", "depends_on: [g]"), "final", ()),
        # It blocks b, but judges a: it cannot run before a has worked.
        (task("a", "gates: [g]") + ", " + task("b"), gate("g", "blocks: [b]"), "task", ("w/g",)),
        # A gate needed by the gates of tasks judges the work of the first of them, not an untouched tree.
        (task("a", "gates: [h]"), gate("g") + ", " + gate("h", "depends_on: [g]"), "task", ("w/h", "w/g")),
        # Needed before a starts as well: it runs then.
        (
            task("a", "gates: [h]"),
            gate("g") + ", " + gate("h", "depends_on: [g]") + ", " + gate("i", "depends_on: [g], blocks: [a]"),
            "start",
            ("w/h",),
        ),
    ],
)
def test_a_gate_runs_when_it_is_first_needed(tasks: str, gates: str, moment: str, after: tuple[str, ...]) -> None:
    found = moments_of(tasks, gates)
    assert found.of["w/g"] == moment
    assert found.after.get("w/a", ()) == after


def test_a_gate_that_two_gates_need_runs_with_the_first_of_them() -> None:
    tasks = ", ".join((task("b", "gates: [late], depends_on: [a]"), task("a", "gates: [early]")))
    gates = ", ".join((gate("g"), gate("early", "depends_on: [g]"), gate("late", "depends_on: [g]")))
    found = moments_of(tasks, gates)
    assert found.after["w/a"] == ("w/early", "w/g")  # judging b too, it would wait for itself
    assert found.after["w/b"] == ("w/late",)


def test_a_gate_of_an_earlier_workstream_does_not_wait_for_tasks_of_a_later_one() -> None:
    plan = read_plan(f"""
name: p
workstreams:
  - {{id: one, tasks: [{task("a")}], gates: [{gate("g")}]}}
  - {{id: two, depends_on: [one], tasks: [{task("b", "gates: [h]")}], gates: [{gate("h", "depends_on: [one/g]")}]}}
""")
    found = moments(plan)
    assert found.of == {"one/g": "final", "two/h": "task"}
    assert found.closing == {"one": ("one/g",), "two": ()}
    assert found.after == {"two/b": ("two/h",)}


def test_a_workstream_waits_at_its_end_for_gates_at_its_start_that_others_need() -> None:
    plan = read_plan(f"""
name: p
workstreams:
  - id: one
    tasks: [{task("a", "gates: [own]")}, {task("b")}]
    gates:
      - {gate("own", "depends_on: [early]")}
      - {gate("early", "blocks: [b]")}
      - {gate("both", "blocks: [b, two/c], depends_on: [before]")}
      - {gate("before")}
      - {gate("needed", "blocks: [b]")}
      - {gate("last")}
  - {{id: two, tasks: [{task("c")}], gates: [{gate("needs", "depends_on: [one/needed]")}]}}
""")
    found = moments(plan)
    assert {name for name, moment in found.of.items() if moment == "start"} == {
        f"one/{name}" for name in ("early", "both", "before", "needed")
    }
    assert found.closing == {"one": ("one/both", "one/before", "one/needed", "one/last"), "two": ("two/needs",)}


def test_a_gate_never_judges_tasks_of_another_workstream() -> None:
    plan = read_plan(f"""
name: p
workstreams:
  - {{id: one, tasks: [{task("a")}], gates: [{gate("g")}]}}
  - {{id: two, tasks: [{task("b", "gates: [h]")}], gates: [{gate("h", "depends_on: [one/g]")}]}}
""")
    found = moments(plan)
    assert found.of == {"one/g": "final", "two/h": "task"}
    assert found.after == {"two/b": ("two/h",)}
    foreign = f"name: p\nworkstreams: [{{id: one, tasks: [{task('a')}], gates: [{gate('g')}]}}, "
    with pytest.raises(PlanInvalid, match=r'the gate "one/g" judges the work of its own workstream only'):
        read_plan(f"{foreign}{{id: two, tasks: [{task('b', 'gates: [one/g]')}]}}]")


@pytest.mark.parametrize(
    ("workstreams", "starts"),
    [
        (  # a task of w waits for it
            f"""
  - id: w
    tasks: [{task("t", "depends_on: [x/x], gates: [h]")}]
    gates: [{gate("g")}, {gate("h", "depends_on: [g]")}]
  - {{id: f, tasks: [{task("ff")}], gates: [{gate("last", "depends_on: [w/g]")}]}}
  - {{id: x, depends_on: [f], tasks: [{task("x", "gates: [h2]")}], gates: [{gate("h2", "depends_on: [w/g]")}]}}
""",
            ["w/g"],
        ),
        (  # it waits for a gate of a workstream that waits for the end of its own
            f"""
  - {{id: a, tasks: [{task("a")}], gates: [{gate("g", "depends_on: [c/k]")}]}}
  - {{id: b, depends_on: [a], tasks: [{task("b", "gates: [h]")}], gates: [{gate("h", "depends_on: [a/g]")}]}}
  - {{id: c, tasks: [{task("c", "depends_on: [b/b]")}], gates: [{gate("k")}]}}
""",
            ["a/g", "c/k"],
        ),
    ],
)
def test_a_gate_whose_workstream_cannot_wait_for_it_at_its_end_runs_at_the_start(
    workstreams: str, starts: list[str]
) -> None:
    found = moments(read_plan(f"name: p\nworkstreams:{workstreams}"))
    assert [name for name, moment in found.of.items() if moment == "start"] == starts


def test_nothing_left_of_a_plan_waits_for_what_is_done() -> None:
    plan = read_plan(f"""
name: p
workstreams:
  - {{id: one, tasks: [{task("a")}], gates: [{gate("g")}]}}
  - {{id: three, depends_on: [one, two], tasks: [{task("d")}]}}
  - id: two
    tasks: [{task("b", "depends_on: [one/a], gates: [h]")}, {task("c", "depends_on: [b]")}]
    gates: [{gate("h", "depends_on: [one/g], blocks: [c]")}]
""")
    left = rest(plan, {"one"})
    one, three, two = left.workstreams
    assert (one.skip, one.tasks, one.gates) == (True, (), ())
    assert three.depends_on == ("two",)
    assert [(each.depends_on, each.gates) for each in two.tasks] == [((), ("two/h",)), (("two/b",), ())]
    assert [(each.depends_on, each.blocks) for each in two.gates] == [((), ("two/c",))]
    assert rest(plan, ()) == plan
