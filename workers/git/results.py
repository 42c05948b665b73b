"""What may become of work on a repository, short of success: values, for the caller to tell its machine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing was done, because it could not be done well; `remedy` is for whoever reads it."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}. {self.remedy}"


@dataclass(frozen=True, slots=True)
class Conflict:
    """The two sides do not fit together; nothing was changed."""

    files: tuple[str, ...]
    says: str

    def __str__(self) -> str:
        return f"conflict in {', '.join(self.files) or 'no named file'}: {self.says}"
