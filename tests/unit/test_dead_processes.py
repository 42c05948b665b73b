"""Who of a node looks for dead processes."""

import os
from typing import Any

import pytest

from interlock.workers.effects import holder
from interlock.workers.pool.dead_processes import Lookout
from interlock.workers.system.pid_namespace import pid_namespace
from tests.callers import FORKS

PROCESSES = 4


def _ask_forks(taken: Any) -> None:
    """What a node's processes answer after one of them has looked: a fork each."""
    lookout, answers = Lookout(), []
    lookout.take_turn(600.0)
    for _ in range(PROCESSES):
        if (child := os.fork()) == 0:
            os._exit(lookout.take_turn(600.0))
        answers.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    taken.put(answers)


def test_one_process_of_a_node_looks_for_all() -> None:
    taken = FORKS.Queue()
    node = FORKS.Process(target=_ask_forks, args=(taken,))
    node.start()
    assert taken.get(timeout=30) == [False] * PROCESSES
    node.join()
    taken.close()
    taken.join_thread()


def test_who_replaces_a_dead_process_looks_however_lately_another_did() -> None:
    lookout = Lookout()
    assert lookout.take_turn(600.0)
    lookout.forget()
    assert lookout.take_turn(600.0)
    assert not lookout.take_turn(600.0)


def test_a_look_that_failed_is_no_look() -> None:
    lookout = Lookout()
    with pytest.raises(AttributeError):
        lookout.look(None, every_seconds=600.0)  # type: ignore[arg-type]
    assert lookout.take_turn(600.0)


def test_a_pool_is_whole_once_that_is_noted() -> None:
    lookout = Lookout()
    assert not lookout.complete
    lookout.note_complete()
    assert lookout.complete


def test_a_holder_names_its_process_and_where_its_pid_counts() -> None:
    node, pid, _, namespace = holder.holder().split(":", 3)
    assert node
    assert holder.pid(holder.holder()) == int(pid)
    assert namespace == (pid_namespace() or "")
