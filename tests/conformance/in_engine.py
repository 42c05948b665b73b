"""Plays sequences in the real engine, on PostgreSQL: instances without links, whose triggers are fired by right."""

from collections.abc import Iterator
from collections.abc import Sequence as Listed
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
from uuid_utils.compat import uuid7

from interlock.workers.client.client import Client
from interlock.workers.client.receipts import Receipt
from interlock.workflows.errors import UnknownTrigger
from tests.conformance.sequences import Answer, Sequence, Step
from tests.driving import drain_all
from tests.rights import fire

DUE = """
UPDATE trigger_requests SET not_before = now() - interval '1 second', status = 'pending'
 WHERE workflow_id = %(id)s AND origin = 'timer' AND status = 'scheduled'
   AND bound_version = (SELECT version FROM workflow_instances WHERE id = %(id)s)
RETURNING request_id"""
SETTLE = {True: "approve", False: "reject"}


def seen(answer: Answer) -> Answer:
    """What a receipt says: not which deadline runs afterwards; nor what is legal, where an approval was refused."""
    told = answer.code in ("guard", "no_such_transition")
    return replace(answer, timer=None, legal=answer.legal if told else ())


class InEngine:
    """The engine, in process."""

    def __init__(self, client: Client, dba: "psycopg.Connection[Any]") -> None:
        self._client = client
        self._dba = dba

    def play(self, played: Listed[Sequence]) -> Iterator[tuple[Answer, ...]]:
        """The answers to each sequence."""
        for one in played:
            made = self._client.create(one.definition.type, f"C-{uuid7()}", context=dict(one.context), by="ann")["id"]
            held: dict[tuple[str, int], Receipt] = {}
            yield tuple(self.answer(made, step, held) for step in one.steps)

    def answer(self, made: UUID, step: Step, held: dict[tuple[str, int], Receipt]) -> Answer:
        """Do a step on an instance; `held` has its triggers that wait for an approval."""
        try:
            receipt = self._done(made, step, held)
        except UnknownTrigger:
            return Answer("rejected", self._client.show(made)["current_state"], "unknown_trigger")
        shown, result = self._client.show(made), receipt.result or {}
        if receipt.status == "waiting":
            held[step.trigger, shown["version"]] = receipt
        legal, missing = tuple(result.get("legal", ())), tuple(result.get("missing", ()))
        return Answer(receipt.status, shown["current_state"], result.get("code"), missing, legal)

    def _done(self, made: UUID, step: Step, held: dict[tuple[str, int], Receipt]) -> Receipt:
        if step.kind == "fire":
            asked = fire(self._client, made, step.trigger, by=step.by, data=step.metadata).request_id
        elif step.kind == "elapse":
            ((asked,),) = self._dba.execute(DUE, {"id": made}).fetchall()
        else:
            waiting = held.pop((step.trigger, step.at_version))
            approval = UUID((waiting.result or {})["approval_id"])
            self._client.fire(approval, SETTLE[step.granted], by="a judge")
            asked = waiting.request_id
        drain_all(self._client.runtime)
        return self._client.wait([asked], timeout_seconds=0)[0]
