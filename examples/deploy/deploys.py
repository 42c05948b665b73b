"""A deploy: a second person approves it, an effect carries it out, its deadline rolls it back (docs/tutorials)."""

import json
import os
from typing import Any
from urllib.request import Request, urlopen

from interlock import ApprovalPoint, Deadline, Definition, Effect, EffectCall, T, effect

SERVICE = os.environ.get("DEPLOYS_URL", "http://127.0.0.1:8080")


def ask(verb: str, call: EffectCall) -> dict[str, Any]:
    """Ask the service for something, which it does once for each key, however often it is asked."""
    body = {"name": call.instance.entity_id, "image": call.instance.context["image"]}
    headers = {"Content-Type": "application/json", "Idempotency-Key": call.idempotency_key}
    with urlopen(Request(f"{SERVICE}/{verb}", json.dumps(body).encode(), headers), timeout=300) as answer:
        return dict(json.load(answer))


@effect("deploy", retries=5, timeout=600)
def deploy(call: EffectCall) -> dict[str, Any]:
    """Deploy the image; what the service answers is the data of `deployed`."""
    call.heartbeat({"step": "asked"})
    answer = ask("deploy", call)
    call.heartbeat({"step": "answered"})  # raises if the deploy was given up meanwhile
    return answer


@effect("undeploy", retries=20)
def undeploy(call: EffectCall) -> None:
    """Take back what `deploy` did, or did in part."""
    ask("undeploy", call)


DO = Effect("deploy", done="deployed", failed="deploy_failed")
UNDO = Effect("undeploy", done="undone", failed="undo_failed")
DEPLOY = Definition(
    type="deploy",
    version="1.0.0",
    summary="A deploy, from planned to live, or rolled back.",
    states=("planned", "deploying", "live", "rolling_back", "rolled_back", "broken"),
    initial="planned",
    terminal=frozenset({"live", "rolled_back", "broken"}),
    transitions=(
        T("start", "planned", "deploying", approval=ApprovalPoint(), effects=(DO,)),  # not by who fires it
        T("deployed", "deploying", "live", by="effect"),
        T("deploy_failed", "deploying", "rolling_back", by="effect", severity="error", effects=(UNDO,)),
        T("give_up", "deploying", "rolling_back", by="machinery", severity="warning", effects=(UNDO,)),
        T("undone", "rolling_back", "rolled_back", by="effect"),
        T("undo_failed", "rolling_back", "broken", by="effect", severity="critical"),
    ),
    deadlines={"deploying": Deadline(60, "give_up")},  # seconds; a real deploy gets more
)
WORKFLOWS = {("deploy", "1.0.0"): DEPLOY}
