"""What a Celery task's result says of the triggers it took."""

from interlock.workers.engine.answers import TriggerAnswer, answer, told

REQUEST = {"workflow_type": "story", "entity_id": "S-1", "trigger": "block", "request_id": "r", "attempts": 0}


def test_an_outcome_is_said_in_words() -> None:
    rows = [
        {"status": "applied", "result": {"from": "a", "to": "b"}, "error": None},
        {"status": "rejected", "result": {"code": "illegal", "message": "no"}, "error": None},
        {"status": "scheduled", "result": None, "error": "ValueError: x\n"},
        {"status": "dead", "result": {"message": "cannot be read"}, "error": "cannot be read"},
    ]
    said = [answer(REQUEST, row) for row in rows]  # type: ignore[arg-type]
    texts = ["applied: a → b", "rejected: no", "to be tried again: ValueError: x\n", "dead: cannot be read"]
    assert [each.text for each in said] == texts
    assert said[0].about == "story/S-1 block"


def test_its_own_comes_first_then_those_refused_and_control_characters_are_spelled_out() -> None:
    moved, refused = (
        TriggerAnswer("story/S-2 block", "applied: a → b"),
        TriggerAnswer("story/S-3 block", "rejected: \x1bno"),
    )
    answers = {"other": moved, "bad": refused, "own": TriggerAnswer("story/S-1 block", "waiting: for ann")}
    assert told(answers, "own") == (
        "waiting: for ann; story/S-3 block rejected: \\x1bno; story/S-2 block applied: a → b"
    )
    assert told({}, "own") == "nothing to do: another task has it, or it is not due"
    many = {str(number): moved for number in range(7)} | {f"bad-{number}": refused for number in range(6)}
    assert told(many, "0").endswith("; and 7 more, 1 of them not applied")


def test_of_a_trigger_that_the_task_did_not_settle_its_row_says_what_became_of_it() -> None:
    died = {"status": "dead", "result": None, "error": "ValueError: x", "attempts": 8}
    moved = TriggerAnswer("story/S-2 block", "applied: a → b")
    assert told({"other": moved}, "own", died) == "dead after 8 attempts: ValueError: x; story/S-2 block applied: a → b"
    assert told({}, "own", died | {"status": "scheduled"}) == "to be tried again: ValueError: x"
    applied = {"status": "applied", "result": {"from": "a", "to": "b"}, "error": None, "attempts": 0}
    assert told({}, "own", applied) == "applied: a → b"
    unsettled = {"status": "pending", "result": None, "error": None, "attempts": 0}
    assert told({}, "own", unsettled) == "nothing to do: another task has it, or it is not due"


def test_the_last_attempt_says_how_many_there_were() -> None:
    died = {"status": "dead", "result": None, "error": "ValueError: x"}
    assert answer({**REQUEST, "attempts": 7}, died).text == "dead after 8 attempts: ValueError: x"  # type: ignore[typeddict-item]
