"""The Dockerfile, checked as far as that goes without an engine."""

import functools
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SECRET_NAME = re.compile(r"PASSWORD|AUTH|SECRET|TOKEN|_KEY|URL")


@functools.cache
def instructions() -> tuple[tuple[str, str], ...]:
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE))
    words = (line.split(maxsplit=1) for line in joined.splitlines() if line.strip())
    return tuple((word.upper(), " ".join(rest.split())) for word, rest in words)


def arguments(instruction: str) -> list[str]:
    return [rest for word, rest in instructions() if word == instruction]


def test_the_base_is_pinned_slim_and_new_enough() -> None:
    bases = {base.split()[0] for base in arguments("FROM")}
    assert len(bases) == 1, "what is built on one Python runs on the same"
    pinned = re.fullmatch(r"python:3\.(\d+)\.\d+-slim(-\w+)?@sha256:[0-9a-f]{64}", bases.pop())
    assert pinned
    assert int(pinned[1]) >= 11


def test_the_image_runs_as_somebody_without_rights() -> None:
    (identity,) = arguments("USER")
    assert min(map(int, identity.split(":"))) > 0, "numbers: the engine can tell that it is not root"
    after = instructions()[instructions().index(("USER", identity)) + 1 :]
    assert [word for word, _ in after] == ["CMD"]


def test_everything_installed_was_checked_against_the_lock() -> None:
    installs = [part.strip() for run in arguments("RUN") for part in run.split("&&") if "pip " in part]
    first, *others = installs
    assert "--require-hashes" in shlex.split(first)
    assert "-r requirements.lock" in first
    for install in others:
        assert "--no-index" in shlex.split(install), f"could fetch what nobody checked: {install}"
    (project,) = [install for install in installs if install.endswith(" .")]
    assert {"--no-deps", "--no-build-isolation"} <= set(shlex.split(project))


def test_the_image_holds_every_package_of_the_wheel() -> None:
    packages = ["src", *(link.name for link in (ROOT / "src" / "interlock").iterdir() if link.is_symlink())]
    assert len(packages) == 9
    copied = {copy for copy in arguments("COPY") if not copy.startswith("--from")}
    assert {f"{package} ./{package}" for package in packages} <= copied
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for copy in copied:
        for source in copy.split()[:-1]:
            assert source in allowed, f".dockerignore hides {source}"
            assert (ROOT / source).exists()


def test_no_secret_reaches_the_image() -> None:
    assert not arguments("ARG"), "build arguments stay in the image's history"
    assert not any(SECRET_NAME.search(line) for line in arguments("ENV"))
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert "**/.env*" in ignored
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


def test_what_developers_need_is_not_needed_to_run() -> None:
    """The image has only what the project brings along; here everything else is installed too, and hides a gap."""
    ours = "interlock.cli.main, interlock.supervisor.__main__, interlock.workers.node"
    imports = f"import {ours}, flower.command, kombu.transport.redis"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{ONLY_THE_PROJECTS_OWN}\n{imports}"],
        cwd=ROOT,
        env={"BROKER_URL": "redis://redis"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"pyproject.toml lacks something: {done.stderr.splitlines()[-1]}"


ONLY_THE_PROJECTS_OWN = """
import sys, tomllib
from itertools import chain
from importlib.metadata import packages_distributions, requires
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

def bring(text, extras=("",)):
    wanted = Requirement(text)
    if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
        return
    name, asked = canonicalize_name(wanted.name), ("", *sorted(wanted.extras))
    if (name, asked) not in seen:
        seen.add((name, asked))
        for each in requires(name) or []:
            bring(each, asked)

seen = set()
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
for dependency in chain(project["dependencies"], *project["optional-dependencies"].values()):
    bring(dependency)
brought = {name for name, _ in seen} | {"interlock", "pip", "setuptools"}
for module, owners in packages_distributions().items():
    if not brought & {canonicalize_name(owner) for owner in owners}:
        sys.modules[module] = None
        for loaded in [each for each in sys.modules if each.startswith(module + ".")]:
            sys.modules[loaded] = None
"""
