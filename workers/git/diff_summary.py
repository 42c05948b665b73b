"""A patch's changes, file by file, in the same form whether read from its text or from what git staged."""

from dataclasses import dataclass

LINK = 0o120000
SUBMODULE = 0o160000
PLAIN = frozenset({0o100644, 0o100755})


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file's change. Paths are as git reads them: unquoted, `/` between parts, relative to the tree's root."""

    old: str
    """Its path before; the same as `new` unless renamed or copied."""
    new: str
    old_mode: int | None = None
    new_mode: int | None = None
    """The file modes; None in a traditional diff, and on a side where the file does not exist."""
    added: int = 0
    deleted: int = 0
    binary: bool = False
    without_content: bool = False
    """A binary change without the file's bytes (`Binary files differ`)."""
    written: tuple[str, ...] = ()
    """The lines it adds."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path it touches."""
        return (self.old,) if self.old == self.new else (self.old, self.new)


@dataclass(frozen=True, slots=True)
class PatchReason:
    """Why a patch is refused: the file, the rule, and a sentence for people."""

    file: str
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}: {self.text} ({self.rule})" if self.file else f"{self.text} ({self.rule})"
