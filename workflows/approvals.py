"""Who may approve: of an approval's context, its deciders and its author (APPROVAL-2)."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from interlock.workflows.input.names import is_name

if TYPE_CHECKING:
    from interlock.workflows.definition import ApprovalPoint


def author_of(context: Mapping[str, Any], asker: str) -> str:
    """Whose work an approval is about: the author that the instance's context names, else who fired the trigger."""
    author = context.get("author")
    return author if isinstance(author, str) and is_name(author) else asker


def terms(
    subject: str, version: int, *, trigger: str, by: str, context: Mapping[str, Any], point: "ApprovalPoint"
) -> dict[str, Any]:
    """The context of the approval for which a trigger is held.

    Args:
        subject, version: the instance, and its version.
        trigger, by: the trigger, and who fired it.
        context: of the instance.
        point: where its machine asks for approval.
    """
    return {
        "subject": subject,
        "subject_version": version,
        "trigger": trigger,
        "requested_by": by,
        "author": author_of(context, by),
        "quorum": point.quorum,
        "deciders": list(point.deciders),
    }


def may_decide(context: Mapping[str, Any], who: str) -> bool:
    """Whether somebody is one of the approval's deciders; everybody is, where it names none."""
    return not context.get("deciders") or who in context["deciders"]


def may_approve(context: Mapping[str, Any], who: str) -> bool:
    """Whether somebody may decide it, and is not its author."""
    return may_decide(context, who) and who != context.get("author")


def can_be_given(deciders: Collection[str], quorum: int, author: str | None = None) -> bool:
    """Whether as many may approve as the quorum asks."""
    return not deciders or len(set(deciders) - {author}) >= quorum
