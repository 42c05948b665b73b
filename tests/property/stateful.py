"""Runs a state machine of Hypothesis: what is drawn happens to the system and to its model."""

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def run_stateful(make: Callable[[], RuleBasedStateMachine], examples: int, steps: int, **more: Any) -> None:
    """Try so many examples of at most so many steps; `more`: what else Hypothesis is told."""
    run_state_machine_as_test(make, settings=settings(max_examples=examples, stateful_step_count=steps, **more))
