"""Commands that fire one trigger of an instance, with a reason, wait for it, and say what became of it."""

from collections.abc import Mapping
from typing import Any, NoReturn
from uuid import UUID

import typer

from interlock.cli.lib.output import FAILED, REFUSED, Words, print_json, say
from interlock.workers.client.client import Client
from interlock.workers.client.receipts import Receipt

EXIT = {"rejected": REFUSED, "superseded": REFUSED, "dead": FAILED}


def settled(client: Client, instance_id: UUID, trigger: str, *, by: str, reason: str, timeout: float) -> Receipt:
    """Fire a trigger and wait until it is applied or refused, for `timeout` seconds at most; returns its receipt."""
    fired = client.fire(instance_id, trigger, by=by, data={"reason": reason})
    return client.wait([fired.request_id], timeout_seconds=timeout)[0]


def tell(receipt: Receipt, applied: tuple[Words, ...], shown: Receipt | Mapping[str, Any], as_json: bool) -> NoReturn:
    """Say what became of a trigger, and end the command with the exit code for that.

    Args:
        receipt: of the trigger.
        applied: what to say if it was applied.
        shown: what to print with --json.
        as_json: whether --json was given.
    """
    if not print_json(shown, as_json):
        refused = f"{receipt.status}: {receipt.error or (receipt.result or {}).get('message', '')}"
        say(*(applied if receipt.status == "applied" else (refused,)))
    raise typer.Exit(EXIT.get(receipt.status, 0))
