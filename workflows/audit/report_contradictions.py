"""Whether a report agrees with itself: hashes, chains, legal moves, and all that repeats the moves."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from interlock.workflows.audit import report_parts
from interlock.workflows.audit.events import born
from interlock.workflows.audit.log_check import Check
from interlock.workflows.audit.report import AuditReport, Move, Statement, subjects
from interlock.workflows.definition import Definition
from interlock.workflows.input.json_text import printed


def contradictions(
    statement: Statement, definitions: Iterable[Definition], progress: Callable[[int], None] = lambda _: None
) -> Iterator[str]:
    """Yield what is wrong with a report, one sentence each: changed moves, broken chains, statements that differ.

    Args:
        statement: as signed.
        definitions: those that its moves must be legal under.
        progress: called now and then with the number of moves checked so far.
    """
    report = statement.predicate
    for problem in report.verification.problems:
        yield f"when it was made, history was already changed: {problem.instance}{problem.place}: {problem.message}"
    check, well = Check.against(definitions), True
    for number, move in enumerate(report.moves, 1):
        for message in _fed(check, number, move):
            well = False
            yield f"move {number}: {message}"
        if number % 1_000 == 0:
            progress(number)
    try:
        yield from _heads(report)
        yield from _derived(statement)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if well:  # otherwise that move was reported above
            yield f"a move lacks what every event has: {error!r}"


def _fed(check: Check, number: int, move: Move) -> Iterator[str]:
    try:
        text = printed(move)
    except ValueError as error:  # half a character in a key: no event of PostgreSQL's has that
        yield f"is no event: {error}"
        return
    yield from check.feed(number, text)


def _heads(report: AuditReport) -> Iterator[str]:
    """Check that instances stand where their last moves left them, and that a whole history begins with a birth."""
    known = {each.workflow_id: each for each in report.instances}
    first: dict[str, Move] = {}
    last: dict[str, Move] = {}
    for move in report.moves:
        first.setdefault(move["context"]["workflow_id"], move)
        last[move["context"]["workflow_id"]] = move
    for workflow_id in last.keys() - known.keys():
        yield f"moves of {workflow_id} are listed, but not the instance"
    for each in report.instances:
        birth = each.birth.model_dump()
        context = {"workflow_id": each.workflow_id, "project": each.project}
        if each.birth.hash != born(
            {"context": context, "entity_type": each.type, "entity_id": each.entity_id, "birth": birth}
        ):
            yield f"{each.name}: the hash of its birth is not that of its content"
        end = last.get(each.workflow_id)
        ends = (end["context"]["seq"], end["hash"], end["to_state"]) if end else (0, each.birth.hash, None)
        if (each.seq, each.head, each.state) != ends:
            yield f"{each.name}: does not stand where its last move left it"
        if (
            report.scope.kind == "instance"
            and end
            and ((begun := first[each.workflow_id])["context"]["seq"] != 1 or begun["prev_hash"] != each.birth.hash)
        ):
            yield f"{each.name}: its history does not begin with its birth"


def _derived(statement: Statement) -> Iterator[str]:
    """Check that what repeats the moves agrees with them."""
    report, moves = statement.predicate, statement.predicate.moves
    if statement.subject != tuple(subjects(report)):
        yield "its subjects are not its instances and commits"
    if report.overrides != report_parts.overrides(moves):
        yield "its overrides are not those of its moves"
    commands = {each.workflow_id: each.command for each in report.gates if each.command is not None}
    if report.gates != report_parts.gates(moves, commands):
        yield "its gates are not those of its moves"
    if report.commits != report_parts.commits(moves):
        yield "its commits are not those of its moves"
    events = {move["event_id"]: move for move in moves}
    for approval in report.approvals:
        for vote in approval.votes:
            if _vote(events.get(vote.event_id)) != (vote.by, vote.vote, vote.request_id, vote.login):
                yield f"approval {approval.entity_id}: the vote of {vote.by} is not that of its move"


def _vote(move: Move | None) -> tuple[Any, ...] | None:
    return None if move is None else (move["triggered_by"], move["trigger"], move["request_id"], move["login"])
