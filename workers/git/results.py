"""The outcomes of work on a repository, as values for the caller."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Committed:
    """The branch contains the patch or the merge, as commit `sha`; `already`: an earlier call made it."""

    sha: str
    already: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing was done, because a precondition was missing; `remedy` says what to do."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}. {self.remedy}"


@dataclass(frozen=True, slots=True)
class Conflict:
    """The two sides conflict; nothing was changed."""

    files: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"conflict in {', '.join(self.files) or 'no named file'}: {self.message}"
