"""Any list of triggers, fired in whatever batches and however often: the state is what folding the table gives."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from interlock.db.audit import verify
from interlock.db.core.requests import partition_of
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from tests.property.model import BEGINS, MOVES, RELINKS, triggers

pytestmark = pytest.mark.integration
UNGUARDED = [trigger for trigger in triggers("story") if trigger not in {"approve", *RELINKS}]
walks = st.lists(st.sampled_from(UNGUARDED), min_size=1, max_size=40)


def folded(walk: list[str]) -> tuple[str, list[str]]:
    """Where a walk leads, and which of its steps were possible."""
    state, taken = BEGINS["story"], []
    for trigger in walk:
        if (state, trigger) in MOVES["story"]:
            state = MOVES["story"][state, trigger]
            taken.append(trigger)
    return state, taken


@given(walk=walks, data=st.data())
@hypothesis_settings(max_examples=24)
def test_batches_duplicates_and_rounds_of_any_size_change_nothing(client: Client, walk: list[str], data: Any) -> None:
    story = client.create("story", f"S-{uuid7()}", project=uuid7())["id"]
    firings = [Firing(story, trigger, "a", f"{story}:{number}") for number, trigger in enumerate(walk)]
    sent = 0
    while sent < len(firings):
        # Each message may repeat what was sent before, as an agent that was not sure does.
        again = data.draw(st.integers(0, sent), label="from")
        upto = data.draw(st.integers(sent + 1, len(firings)), label="upto")
        client.fire_many(firings[again:upto])
        sent = upto
        client.runtime.applier.apply_partition(partition_of(story), limit=data.draw(st.integers(1, 5), label="limit"))
    while client.runtime.applier.apply_partition(partition_of(story)).taken:
        pass
    state, taken = folded(walk)
    assert client.show(story)["current_state"] == state
    history = client.history(story)
    assert [event["trigger"] for event in history] == taken
    assert [event["seq"] for event in history] == list(range(1, len(taken) + 1))


def test_every_chain_of_random_walks_is_whole(client: Client) -> None:
    @given(walk=walks)
    @hypothesis_settings(max_examples=15)
    def walk_once(walk: list[str]) -> None:
        story = client.create("story", f"S-{uuid7()}", project=uuid7())["id"]
        client.fire_many([Firing(story, trigger, "a") for trigger in walk])
        client.runtime.applier.apply_partition(partition_of(story))

    walk_once()
    verdict = verify.verify(client.runtime.database)
    assert verdict.ok, verdict.problems
