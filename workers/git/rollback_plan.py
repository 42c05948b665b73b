"""The compensation plan of a rollback (PATCH-12)."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SHA = r"^[0-9a-f]{7,64}$"
Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]


class RollbackPart(BaseModel):
    """A part of a plan; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class GitRevert(RollbackPart):
    """Revert one commit. Required unless the plan says otherwise: if it fails, nothing is rolled back."""

    action: Literal["git_revert"]
    commit_sha: Annotated[str, Field(pattern=SHA)]
    branch: Annotated[
        str, Field(min_length=1, max_length=200, pattern=r"^[^-\x00-\x20~^:?*\[\\][^\x00-\x20~^:?*\[\\]*$")
    ]
    required: bool = True


class RunTests(RollbackPart):
    """Run a test suite on the reverted tree."""

    action: Literal["run_tests"]
    test_suite: Word
    required: bool = False


class Notify(RollbackPart):
    """Notify people."""

    action: Literal["notify"]
    channels: Annotated[tuple[Word, ...], Field(min_length=1)]
    recipients: tuple[Word, ...] = ()
    required: bool = False


Action = Annotated[GitRevert | RunTests | Notify, Field(discriminator="action")]


class Validation(RollbackPart):
    """The conditions at the end."""

    required_gates: tuple[Word, ...] = ()
    verify_clean_state: bool = False


class CompensationPlan(RollbackPart):
    """How a committed patch is rolled back.

    `git_revert` reverts by the actions. With `manual_fix`, people repaired the branch (`commit_sha`: by that commit,
    PATCH-12) and the plan only verifies it. With `skip`, there is nothing to revert. All reverts must be on one branch,
    because two branches could not move in one step.
    """

    compensation_type: Literal["git_revert", "manual_fix", "skip"]
    commit_sha: Annotated[str | None, Field(pattern=SHA)] = None
    actions: tuple[Action, ...] = ()
    validation: Validation = Validation()

    @model_validator(mode="after")
    def _consistent(self) -> "CompensationPlan":
        if bool(self.reverts) != (self.compensation_type == "git_revert"):
            raise ValueError("actions: git_revert is only for compensation_type git_revert")
        if self.commit_sha and self.compensation_type != "manual_fix":
            raise ValueError("commit_sha: is only for a manual_fix; name the commits to revert in actions")
        if len({each.branch for each in self.reverts}) > 1:
            raise ValueError("actions: every git_revert must be on the same branch")
        return self

    @property
    def reverts(self) -> tuple[GitRevert, ...]:
        """The reverts, in the plan's order."""
        return tuple(each for each in self.actions if isinstance(each, GitRevert))
