"""What a gate runs is told from its command: programs, scripts and modules, not what it looks at."""

import pytest

from interlock.workflows.plan.gate_programs import named


@pytest.mark.parametrize(
    ("words", "shell", "cwd", "run"),
    [
        (["scripts/check.sh", "app.py"], False, "", {"scripts/check.sh"}),
        (["sh", "scripts/check.sh"], False, "", {"scripts/check.sh", "sh"}),
        (["python3.11", "-I", "tools/check.py", "app.py"], False, "", {"python3.11", "tools/check.py"}),
        (["python", "-m", "t.x"], False, "", {"python", "t/x.py", "t/x/__main__.py", "t/x/__init__.py"}),
        (["sh", "-ec", "cd x && ./check.sh | tee out"], False, "", {"sh", "cd", "check.sh", "tee"}),
        (["./check"], False, "sub", {"sub/check"}),
        (["make", "-f", "build/rules", "test"], False, "", {"make", "build/rules"}),
        (["CI=1 exec ./a.sh; bash b.sh\n\n(node c.js)"], True, "", {"a.sh", "bash", "b.sh", "node", "c.js"}),
        (["if ! ./a.sh 'x y'; then python d.py; fi"], True, "", {"a.sh", "python", "d.py", "fi"}),
        (["grep -q one app.py"], True, "", {"grep"}),
        (["echo 'open"], True, "", {"echo"}),
        (["../out/of/it", "/bin/sh"], False, "", set()),
    ],
)  # fmt: skip
def test_programs_and_scripts_are_told_from_arguments(words: list[str], shell: bool, cwd: str, run: set[str]) -> None:
    found = named(words, shell=shell, cwd=cwd)
    assert found.run == run
    assert not found.run & found.other


def test_what_is_only_named_is_told_apart() -> None:
    assert "tests/run" in named(["timeout", "60", "tests/run"]).other
