"""The Tab key in real shells: commands, options, types, names of instances, legal triggers."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal

Offered = Callable[..., list[str]]
pytestmark = pytest.mark.integration
# A shell's program that loads our script, `$2`, and prints what Tab offers after the words `$1`. bash and zsh complete
# only for somebody at a keyboard, so their functions are called as they would call them.
PROGRAMS = {
    "bash": """
        source "$2"
        read -ra COMP_WORDS <<< "$1"; [[ $1 == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _interlock_completion interlock; printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "zsh": """
        compdef() { }
        source "$2"
        _arguments() { print -r -- "$@" | tr '(:"' '\\n\\n\\n' }; _files() { print FILES }
        words=(${(z)1}); [[ $1 == *" " ]] && words+=(""); CURRENT=${#words}; _interlock_completion
    """,
    "fish": """
        set -e fish_greeting; source $argv[2]
        complete --do-complete "$argv[1]"
    """,
}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a shell's script, as `interlock completion` prints it: once for all that is typed."""

    @cache
    def printed(shell: str) -> Path:
        file = tmp_path_factory.mktemp("completion") / shell
        with file.open("w") as output:
            subprocess.run(
                [Path(sys.executable).with_name("interlock"), "completion", shell], stdout=output, check=True
            )
        return file

    return printed


@pytest.fixture
def offered(tmp_path: Path, script: Callable[[str], Path]) -> Offered:
    """The words that the Tab key offers in a shell after what was typed."""

    def ask(terminal: Terminal, typed: str, shell: str = "bash") -> list[str]:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        begun = {"bash": ("--norc",), "zsh": ("-f",), "fish": ("--no-config",)}[shell]
        words = (shell, *begun, "-c", PROGRAMS[shell], *(() if shell == "fish" else ("-",)), typed, script(shell))
        env = {**terminal.variables, "PATH": path, "HOME": str(tmp_path)}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
        assert done.stderr == "", done.stderr
        return [line.split("\t")[0].strip() for line in done.stdout.splitlines() if line.strip()]

    return ask


@pytest.mark.parametrize("shell", PROGRAMS)
def test_a_shell_completes_commands_names_and_legal_triggers(
    terminal: Terminal, story: str, offered: Offered, shell: str
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    assert "show" in offered(terminal, "interlock sho", shell)
    assert story in offered(terminal, f"interlock show {story[:3]}", shell)
    triggers = offered(terminal, f"interlock fire {story} ", shell)
    assert "design_complete" in triggers
    assert "tests_pass" not in triggers, "not legal now"


def test_the_words_offered_are_of_the_project_the_type_and_the_installation(
    terminal: Terminal, story: str, offered: Offered
) -> None:
    assert offered(terminal, f"interlock show story/{story[:3]}") == [f"story/{story}"]
    assert offered(terminal.set(INTERLOCK_PROJECT="default"), f"interlock show {story}") == []
    assert offered(terminal, f"interlock run show {story}") == [], "it is no run"
    assert "story" in offered(terminal, "interlock create st")
    assert "--if-version" in offered(terminal, "interlock fire S T --if")


@pytest.mark.parametrize("shell", PROGRAMS)
def test_a_name_that_means_something_to_a_shell_is_not_offered(
    terminal: Terminal, offered: Offered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    monkeypatch.chdir(tmp_path)
    plain = "tab-a.b_c@d+f=g,h~i"
    run = (r"\$(touch P)", "$(touch${IFS}P)", "`touch P`", "';touch P;'", '";touch P;"', "|touch P|", r"\`touch P\`")
    plainer = ("*", "{a,b}", "<P", "(P)", "!!")
    made = terminal.each([("create", "story", each) for each in (plain, *(f"tab-{each}" for each in (*run, *plainer)))])
    assert [answer.said for answer in made if answer.code] == []
    found = offered(terminal, "interlock show tab-", shell)
    assert [each.replace("\\", "") for each in found if each.startswith("tab-")] == [plain]
    assert not (tmp_path / "P").exists()


def test_an_option_is_not_offered_as_a_name(terminal: Terminal, offered: Offered) -> None:
    assert terminal.run("create", "story", "--by", "ann", "--", "--by=eve").code == 0
    assert "--by=eve" not in offered(terminal, "interlock show -")


def test_a_home_of_others_is_not_asked(terminal: Terminal, story: str, offered: Offered) -> None:
    typed, before = f"interlock show {story}", terminal.home.stat()
    assert offered(terminal, typed) == [story]
    try:
        for mode in (0o720, 0o702):
            terminal.home.chmod(mode)
            assert offered(terminal, typed) == []
        terminal.home.chmod(before.st_mode)
        if os.geteuid() == 0:
            os.chown(terminal.home, 12345, -1)
            assert offered(terminal, typed) == []
    finally:
        os.chown(terminal.home, before.st_uid, before.st_gid)
        terminal.home.chmod(before.st_mode)


def test_limits_forms_and_definitions_are_completed(terminal: Terminal, offered: Offered) -> None:
    terminal.ok("limit", "set", "key", "deploy-eu", "--at-once", "3", "--by", "ann", "--reason", "three servers")
    assert offered(terminal, "interlock limit show key ") == ["deploy-eu"]
    assert offered(terminal, "interlock limit show tool ") == []
    terminal.ok("limit", "remove", "key", "deploy-eu", "--by", "ann", "--reason", "enough servers")
    assert offered(terminal, "interlock limit show key ") == []
    assert "sprint" in offered(terminal, "interlock definitions export ")
    assert offered(terminal, "interlock definitions export story --format s") == ["sql", "scxml"]


def test_where_nothing_answers_nothing_is_offered_and_nothing_is_said(tmp_path: Path, offered: Offered) -> None:
    nowhere = Terminal(tmp_path / "never").set(INTERLOCK_FLOWR_PORT="1", DATABASE_URL="postgresql://127.0.0.1:1/none")
    assert offered(nowhere, "interlock show S") == []
    assert "show" in offered(nowhere, "interlock sho")
