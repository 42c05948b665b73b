"""Find the files that a gate's command runs. They judge a change, so the change itself must not modify them."""

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash"}
INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|node|ruby|perl|php|lua|deno|bun|tsx|pwsh|make|gmake|just|source|\.")
LEADING = {"exec", "env", "nice", "nohup", "time", "command", "sudo", "!", "if", "then", "else", "while", "do", "{"}
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
BETWEEN = set(";&|()")


@dataclass(frozen=True, slots=True)
class Named:
    """Paths in a repository that a command names, relative to the repository's root.

    `run` are certainly run; `other` may be mere arguments.
    """

    run: frozenset[str] = frozenset()
    other: frozenset[str] = frozenset()


def named(words: Sequence[str], *, shell: bool = False, cwd: str = "") -> Named:
    """Find the paths that a command names.

    Args:
        words: the program and its arguments; with `shell`, one shell script.
        shell: whether `words` is a shell script.
        cwd: the working directory, relative to the repository's root.
    """
    commands = [each for line in words for each in _of_line(line)] if shell else [list(words)]
    run = [path for each in commands for path in _run(each)]
    every = [word for each in commands for word in each]
    inside = frozenset(_within(run, cwd))
    return Named(inside, frozenset(_within(every, cwd)) - inside)


def _of_line(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell script, as far as they can be found without expansion."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            tokens = list(lexer)
        except ValueError:  # a quotation that spans several lines
            tokens = line.split()
        command: list[str] = []
        for token in tokens:
            if set(token) <= BETWEEN:
                yield command
                command = []
            else:
                command.append(token)
        yield command


def _run(words: list[str]) -> Iterator[str]:
    """The program, and the script that it interprets, if any."""
    while words and (words[0] in LEADING or ASSIGNMENT.match(words[0])):
        words = words[1:]
    if not words:
        return
    yield words[0]
    name = posixpath.basename(words[0])
    if name in SHELLS and (line := _after("-c", words, inside=True)):
        yield from (path for each in _of_line(line) for path in _run(each))
    elif module := _after("-m", words):
        path = module.replace(".", "/")
        yield from (f"{path}.py", f"{path}/__main__.py", f"{path}/__init__.py")
    elif name in SHELLS or INTERPRETER.fullmatch(name):
        script = _after("-f", words)
        yield from [script] if script else [each for each in words[1:] if not each.startswith("-")][:1]


def _after(option: str, words: list[str], *, inside: bool = False) -> str | None:
    """The word after an option; with `inside`, also after a cluster that ends with it, such as `-ec`."""
    for at, word in enumerate(words[1:-1], start=1):
        if word == option or (inside and re.fullmatch(r"-[a-z]*c", word)):
            return words[at + 1]
    return None


def _within(words: Sequence[str], cwd: str) -> Iterator[str]:
    for word in words:
        path = posixpath.normpath(posixpath.join(cwd, word))
        if word and "\0" not in word and not path.startswith(("/", "../")) and path not in (".", ".."):
            yield path
