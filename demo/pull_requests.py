"""Real pull requests, as JSON lines: read, checked, and turned into the triggers that lead each one to merged."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from interlock.workers.engine.trigger_request import Firing
from interlock.workflows.errors import BadInput

Words = Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")]  # PostgreSQL keeps no NUL
Name = Annotated[Words, Field(min_length=1, max_length=100)]


class Commit(BaseModel):
    """One commit: who wrote it, when, and its subject line."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    sha: Words = ""
    author: Name
    at: datetime
    subject: Words = ""


class PullRequest(BaseModel):
    """One merged pull request with its commits in order."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    repo: Name = "replay"
    number: int = Field(ge=1, le=10**18)
    title: Words
    merged_by: Name
    merged_at: datetime
    commits: tuple[Commit, ...] = Field(min_length=1)

    @property
    def author(self) -> str:
        """Whose work it is: the author of its first commit."""
        return self.commits[0].author

    @property
    def self_merged(self) -> bool:
        """The author merged it; somebody else has to approve it then."""
        return self.merged_by == self.author

    @property
    def project(self) -> str:
        """The repository's project."""
        return self.repo


def read(path: Path) -> list[PullRequest]:
    """The pull requests of a JSONL file.

    Raises:
        BadInput: the file cannot be read, or a line is not a pull request; names the file, the line and the field.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # splitlines() would also split at U+2028 and U+0085
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error
    found = [_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise BadInput(f"{path}: holds no pull request; each line must be one JSON object")
    _refuse_repeats(path, found)
    return found


def _parse(path: Path, number: int, line: str) -> PullRequest:
    try:
        return PullRequest.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadInput(f"{path}:{number}: {f'{where}: ' if where else ''}{first['msg']}") from error


def _refuse_repeats(path: Path, found: list[PullRequest]) -> None:
    seen: set[tuple[str, int]] = set()
    for each in found:
        if (each.repo, each.number) in seen:
            raise BadInput(f"{path}: pull request {each.number} of {each.repo} is there twice")
        seen.add((each.repo, each.number))


@dataclass(frozen=True, slots=True)
class Journey:
    """A pull request's way: the story and the review it becomes, and the triggers of each stage."""

    pull_request: PullRequest
    reviewer: str

    @property
    def story(self) -> str:
        """The story's entity id."""
        return f"S-{self.pull_request.number}"

    @property
    def review(self) -> str:
        """The pull request review's entity id."""
        return f"PR-{self.pull_request.number}"

    @property
    def story_key(self) -> tuple[str, str]:
        """The story's project and entity id."""
        return self.pull_request.project, self.story

    @property
    def review_key(self) -> tuple[str, str]:
        """The review's project and entity id."""
        return self.pull_request.project, self.review

    @property
    def approver(self) -> str:
        """Who may approve it: the merger, unless that is the author."""
        return self.reviewer if self.pull_request.self_merged else self.pull_request.merged_by

    def to_merge(self, story_id: UUID, review_id: UUID) -> Iterator[Firing]:
        """Everything up to the merge, which is then held for its approval."""
        first, *later = self.pull_request.commits
        yield self._firing(story_id, "design_complete", first.author, 0)
        yield self._firing(story_id, "start_coding", first.author, 1, first)
        yield self._firing(story_id, "submit_pr", first.author, 2, first)
        yield self._firing(review_id, "start_review", self.approver, 3)
        for place, commit in enumerate(later):
            yield self._firing(review_id, "request_changes", self.approver, 10 + 2 * place)
            yield self._firing(review_id, "resubmit", commit.author, 11 + 2 * place, commit)
        if self.pull_request.self_merged:  # the rule refuses this one: that it does is part of the replay
            yield self._firing(review_id, "approve", self.pull_request.merged_by, 4)
        yield self._firing(review_id, "approve", self.approver, 5)
        yield self._merge(review_id)

    def merge_request(self) -> str:
        """The request_id of the merge."""
        return self._request_id(6, "merge")

    def to_approval(self, approval_id: UUID) -> Firing:
        """The decision that lets the merge go on."""
        return self._firing(approval_id, "approve", self.approver, 7)

    def to_done(self, story_id: UUID) -> Firing:
        """The story's last step; merging has approved it by then."""
        return self._firing(story_id, "tests_pass", self.approver, 8)

    def _merge(self, review_id: UUID) -> Firing:
        data = {"merged_at": self.pull_request.merged_at.isoformat()}
        return Firing(review_id, "merge", self.pull_request.merged_by, self.merge_request(), data)

    def _firing(self, ref: UUID, trigger: str, by: str, place: int, commit: Commit | None = None) -> Firing:
        data = {"sha": commit.sha, "at": commit.at.isoformat(), "subject": commit.subject} if commit else {}
        return Firing(ref, trigger, by, self._request_id(place, trigger), data)

    def _request_id(self, place: int, trigger: str) -> str:
        # The same in every replay: that is what makes a second one change nothing, and an interrupted one go on.
        return f"replay:{self.pull_request.project}:{self.pull_request.number}:{place}:{trigger}"
