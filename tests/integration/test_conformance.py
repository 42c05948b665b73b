"""The same random sequences have the same outcome in our engine and in each form that can run (docs/forms.md)."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.workers.client.client import Client
from interlock.workflows.catalogue import catalogue
from interlock.workflows.forms.sql import sql
from tests.conformance import in_engine
from tests.conformance.compare import compare
from tests.conformance.in_engine import InEngine
from tests.conformance.in_handover import FromEngine, OverThere
from tests.conformance.in_scxml import InScxml, seen
from tests.conformance.in_sql import InPostgres
from tests.conformance.in_temporal import OnTemporal
from tests.conformance.in_xstate import CannotRun, UnderNode
from tests.conformance.sequences import sequence

pytestmark = pytest.mark.integration
SEED = 1
DEFINITIONS = len(list(catalogue()))
SEQUENCES = 10 * DEFINITIONS
Dba = psycopg.Connection[Any]


def test_the_sql_form_answers_as_we_do_and_if_not_that_is_noticed(dba: Dba) -> None:
    form = InPostgres(dba)
    found = compare(form.play, SEQUENCES, SEED)
    assert found.differing == []
    assert len(found.moves) > 100
    assert {"guard", "not_yours", "already_held", "no_such_transition", "approval"} <= set(found.kinds)
    dba.execute("UPDATE story_1_0_0.moves SET conditions = '{}' WHERE trigger = 'approve'")
    dba.execute("DELETE FROM story_1_0_0.moves WHERE trigger = 'unblock'")
    found = compare(form.play, SEQUENCES, SEED)
    assert found.differences > 0
    assert {line.split("@")[0] for line in found.differing} == {"story"}


def test_the_xstate_form_answers_as_we_do(tmp_path: Path) -> None:
    try:
        node = UnderNode(tmp_path)
    except CannotRun as reason:
        pytest.skip(str(reason))
    found = compare(node.play, SEQUENCES, SEED)
    assert found.differing == []
    assert len(found.moves) > 100


def test_the_temporal_form_answers_as_we_do(tmp_path: Path) -> None:
    found = compare(OnTemporal(tmp_path).play, SEQUENCES, SEED)
    assert found.differing == []
    assert len(found.moves) > 100


def test_an_instance_that_is_handed_over_answers_there_as_here(tmp_path: Path) -> None:
    found = compare(OverThere(tmp_path).play, SEQUENCES, SEED)
    assert not found.differences, found.differing
    assert found.kinds["applied"] > SEQUENCES


@pytest.mark.parametrize(("type_", "context"), [("story", {}), ("pr_review", {"author": "author"})])
def test_what_the_engine_froze_answers_on_temporal_as_decide_does(
    client: Client, dba: Dba, ann: None, tmp_path: Path, type_: str, context: dict[str, Any]
) -> None:
    played = [sequence(catalogue().get(type_), seed, 12, alone=context) for seed in range(SEED, SEED + 12)]
    for one, answers in zip(played, FromEngine(client, dba, tmp_path).play(played), strict=True):
        assert answers == tuple(map(in_engine.seen, one.answers)), f"seed {one.seed}"


def test_the_scxml_form_answers_as_we_do(tmp_path: Path) -> None:
    found = compare(InScxml(tmp_path).play, SEQUENCES, SEED, seen)
    assert found.differing == []
    assert len(found.moves) > 100


def test_history_of_the_sql_form_is_only_added_to(dba: Dba) -> None:
    dba.execute(sql(catalogue().get("story")))  # type: ignore[call-overload]
    dba.execute("SELECT story_1_0_0.create_instance('S-1'), story_1_0_0.fire('S-1', 'design_complete', 'ann')")
    for change in ("DELETE FROM story_1_0_0.history", "UPDATE story_1_0_0.history SET seq = 9"):
        with pytest.raises(psycopg.errors.RaiseException, match="history is not changed"):
            dba.execute(change)  # type: ignore[call-overload]
    assert dba.execute("SELECT to_state FROM story_1_0_0.history").fetchall() == [("design",)]


def test_the_sql_form_keeps_effects_and_follow_ups_for_its_host(dba: Dba) -> None:
    dba.execute(sql(catalogue().get("pr_review")))  # type: ignore[call-overload]
    dba.execute("SELECT pr_review_1_0_0.create_instance('P-1')")
    for step in ("start_review", "approve", "merge"):
        dba.execute("""SELECT pr_review_1_0_0.fire('P-1', %s, 'ann', 'anyone', '{"not_the_author": true}')""", (step,))
    dba.execute("SELECT pr_review_1_0_0.settle('P-1', 'merge', 2, true)")
    kept = dba.execute("SELECT kind, body->>'trigger' FROM pr_review_1_0_0.outbox ORDER BY position").fetchall()
    assert kept == [("approval", "merge"), ("follow_up", "approve")]


@pytest.mark.parametrize(("type_", "context"), [("story", {}), ("sprint", {}), ("pr_review", {"author": "author"})])
def test_the_engine_answers_as_decide_does(client: Client, dba: Dba, type_: str, context: dict[str, Any]) -> None:
    definition = catalogue().get(type_)
    played = [sequence(definition, seed, 12, alone=context) for seed in range(SEED, SEED + 8)]
    for one, answers in zip(played, InEngine(client, dba).play(played), strict=True):
        assert answers == tuple(map(in_engine.seen, one.answers)), f"seed {one.seed}"


def test_the_engine_lets_deadlines_pass_as_decide_does(client: Client, dba: Dba) -> None:
    definition = catalogue().get("circuit_breaker")
    for seed in range(SEED, SEED + 6):
        one = sequence(definition, seed, 12, alone={"tool_id": f"tool-{seed}"})
        (answers,) = InEngine(client, dba).play([one])
        assert answers == tuple(map(in_engine.seen, one.answers)), f"seed {seed}"
