"""Git notes under a ref of ours. Writing one touches neither the checkout nor the configuration."""

from interlock.workers.git import repository as place
from interlock.workers.git.lock import LOCK_SECONDS
from interlock.workers.git.repository import Repository

REF = "refs/notes/interlock"


def write(repository: Repository, sha: str, text: str, *, lock_seconds: float = LOCK_SECONDS) -> None:
    """Give a commit its note, in place of one that it had.

    Args:
        repository: the commit's.
        sha: the commit.
        text: the note, of one line.
        lock_seconds: how long to wait for others that use the repository.

    Raises:
        RepositoryBusy: another process holds the lock for too long. Nothing was written; try again.
        GitFault: git failed; the message says how. Repair that and try again.
    """
    with place.hold(repository, timeout_seconds=lock_seconds) as git:
        git.run("notes", f"--ref={REF}", "add", "--force", "--file=-", sha, stdin=f"{text}\n".encode())
