"""Effects of users are checked when they are declared and when a definition names them, with file and line."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from interlock.workflows import effects
from interlock.workflows.catalogue import Catalogue, catalogue
from interlock.workflows.decide import decide
from interlock.workflows.effects import effect
from interlock.workflows.errors import InvalidDefinition
from interlock.workflows.guard_context import Case
from interlock.workflows.outcomes import Applied, Rejected

MACHINE = """
    from interlock import Definition, Effect, T, effect

    @effect("unit_deploy")
    def deploy(call):
        return {}

    DEPLOY = Definition(
        type="deploy", version="1.0.0", summary="A deploy.", states=("ready", "deploying", "live", "failed"),
        initial="ready", terminal=frozenset({"live", "failed"}),
        transitions=(
            T("start", "ready", "deploying", effects=(
                Effect("unit_deploy", done="deployed", failed="give_up"),
            )),
            T("deployed", "deploying", "live", by="effect"),
            T("give_up", "deploying", "failed", by="effect"),
        ),
    )
    WORKFLOWS = {("deploy", "1.0.0"): DEPLOY}
"""
LINE_OF_EFFECT, LINE_OF_FUNCTION = 13, 4


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test declares effects of its own."""
    monkeypatch.setattr(effects, "_DECLARED", {})


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Writes a module that can be imported; its name."""
    monkeypatch.syspath_prepend(tmp_path)
    names: list[str] = []

    def write(text: str = MACHINE, *changes: tuple[str, str]) -> str:
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        names.append(f"unit_machine_{len(names)}")
        (tmp_path / f"{names[-1]}.py").write_text(dedent(text))
        return names[-1]

    yield write
    for name in names:
        sys.modules.pop(name, None)


def load(name: str) -> Catalogue:
    return catalogue.__wrapped__((name,))


def refused(name: str) -> str:
    """Why a module is refused."""
    with pytest.raises(InvalidDefinition) as refusal:
        load(name)
    return str(refusal.value)


def test_a_module_s_effects_are_known_with_what_they_declare(module: Callable[..., str]) -> None:
    terms = 'retries=3, timeout=60, queue="deploys", heartbeat=5'
    found = load(module(MACHINE, ('"unit_deploy")\n    def', f'"unit_deploy", {terms})\n    async def')))
    own = found.effects["unit_deploy"]
    assert (own.retries, own.timeout_seconds, own.queue, own.heartbeat_seconds) == (3, 60, "deploys", 5)
    assert inspect.iscoroutinefunction(own.act)
    assert own.place.endswith(f"unit_machine_0.py:{LINE_OF_FUNCTION}")
    assert (own.max_attempts(8), effects.queue_of("unit_deploy"), effects.queue_of("notice")) == (
        4,
        "deploys",
        "effects",
    )


def test_an_unknown_effect_is_refused_with_file_and_line(module: Callable[..., str]) -> None:
    said = refused(module(MACHINE, ('@effect("unit_deploy")', '@effect("unit_deplyo")')))
    assert f"unit_machine_0.py:{LINE_OF_EFFECT}: the effect 'unit_deploy' is none that is known here" in said
    assert "unit_deplyo" in said
    assert 'declare it with @effect("unit_deploy") in a module of INTERLOCK_DEFINITIONS' in said


CALL = 'from interlock import webhook\nwebhook("unit_call", "https://example.org/in?team=7", secret="env:PAGER")\n'


def test_a_webhook_is_an_effect_with_an_endpoint(module: Callable[..., str]) -> None:
    own = load(module(CALL)).effects["unit_call"]
    assert own.act == effects.Endpoint("https://example.org/in?team=7", ("env:PAGER",))
    assert (own.timeout_seconds, own.retries, own.queue) == (30.0, None, "effects")
    assert own.place.endswith("unit_machine_0.py:2")


WRONG = [
    *(
        (MACHINE, LINE_OF_EFFECT, old, new, why)
        for old, new, why in (
            (
                ', failed="give_up"',
                "",
                "names the trigger 'done' that it tells, but not 'failed': name both or neither",
            ),
            ('done="deployed", ', "", "names the trigger 'failed' that it tells, but not 'done'"),
            (
                '"deployed", f',
                '"deploid", f',
                "effect 'unit_deploy' of 'start' reports 'deploid', illegal in 'deploying'",
            ),
        )
    ),
    *(
        (MACHINE, LINE_OF_FUNCTION, old, new, why)
        for old, new, why in (
            ("deploy(call)", "deploy()", "it is called with one argument, an EffectCall, but takes ()"),
            ("deploy(call)", "deploy(call, more)", "but takes (call, more)"),
            ("deploy(call)", "deploy(*, call)", "but takes (*, call)"),
            ("return {}", "yield {}", "it must return its result, not yield"),
        )
    ),
    *(
        (MACHINE, LINE_OF_FUNCTION, '@effect("unit_deploy"', f"@effect({terms}", why)
        for terms, why in (
            ('"notice"', "Interlock has an effect of that name"),
            ('"unit deploy"', "its name must be at most 100 letters"),
            ('"unit_deploy", retries=-1', "retries must be a whole number, at least 0"),
            ('"unit_deploy", timeout=0', "timeout must be more than 0 seconds"),
            ('"unit_deploy", timeout="1m"', "timeout must be more than 0 seconds"),
            ('"unit_deploy", heartbeat=-1', "heartbeat must be more than 0 seconds"),
            ('"unit_deploy", queue="My Queue"', "queue must be at most 50"),
        )
    ),
    *(
        (CALL, 2, old, new, f"the effect 'unit_call' is invalid: {why}")
        for old, new, why in (
            ("https://example.org", "ftp://example.org", "url must be http:// or https://"),
            ("https://example.org", "https://ann:secret@example.org", "url must be http:// or https://"),
            ('"env:PAGER"', '"whsec_c2VjcmV0"', "secret must be env:NAME, file:PATH or command:NAME"),
            ('"env:PAGER"', "()", "secret must be env:NAME, file:PATH or command:NAME"),
            ('secret="env:PAGER"', 'secret="env:PAGER", timeout=0', "timeout must be more than 0 seconds"),
        )
    ),
]


@pytest.mark.parametrize(("text", "line", "old", "new", "why"), WRONG)
def test_what_is_wrong_is_refused_with_file_and_line(
    module: Callable[..., str], text: str, line: int, old: str, new: str, why: str
) -> None:
    said = refused(module(text, (old, new)))
    assert f"unit_machine_0.py:{line}: " in said
    assert why in said
    assert "c2VjcmV0" not in said


def test_a_class_is_no_effect(module: Callable[..., str]) -> None:
    changed = ("def deploy(call):\n        return {}", "class deploy:\n        pass")
    assert "it must be a function" in refused(module(MACHINE, changed))


def test_one_name_is_one_function_however_often_its_module_is_read(module: Callable[..., str]) -> None:
    name = module()
    load(name)
    del sys.modules[name]
    load(name)
    other = module('from interlock import effect\n@effect("unit_deploy")\ndef mine(call): ...\n')
    assert f"{name}.py:{LINE_OF_FUNCTION} declares one of that name, too" in refused(other)


def test_a_queue_that_no_node_consumes_is_refused(module: Callable[..., str]) -> None:
    load(module(MACHINE, ('"unit_deploy")\n    def', '"unit_deploy", queue="deploys")\n    def')))
    effects.require_queues(("deploys",))
    with pytest.raises(InvalidDefinition, match=r"py:4: the effect 'unit_deploy' names the queue 'deploys', which no"):
        effects.require_queues(())


SECRET = "hunter2" * 30


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            '"token"',
            r"unit_machine_0.py:4: the limit key of the effect 'unit_deploy', 'token' of the context, must be a n",
        ),
        ('"tokens"', r"must be a name of 1 to 100 characters, or None; it is of the type list"),
        ("lambda context: context['token']", "py:4: .* must be a name .*; it is a text of 210 characters that is none"),
        ("lambda context: context[context['token']]", "cannot be made: its function raises KeyError"),
    ],
)
def test_a_move_whose_effect_has_no_valid_key_is_rejected_and_nothing_of_the_context_is_said(
    module: Callable[..., str], key: str, said: str
) -> None:
    deploy = load(module(MACHINE, ('"unit_deploy")\n    def', f'"unit_deploy", key={key})\n    def'))).get("deploy")
    outcome = decide(deploy, Case("ready", 0, {"token": SECRET, "tokens": [SECRET]}, "start", "ann"))
    assert isinstance(outcome, Rejected)
    assert outcome.reason["code"] == "wrong_data"
    assert re.search(said, outcome.reason["message"]), outcome.reason
    assert "hunter2" not in str(outcome.reason)


def test_a_move_has_the_keys_of_its_effects(module: Callable[..., str]) -> None:
    deploy = load(module(MACHINE, ('"unit_deploy")\n    def', '"unit_deploy", key="server")\n    def'))).get("deploy")
    outcomes = [decide(deploy, Case("ready", 0, context, "start", "ann")) for context in ({"server": "eu"}, {})]
    assert [each.limit_keys for each in outcomes if isinstance(each, Applied)] == [("eu",), (None,)]


def test_a_function_keeps_its_name_and_can_be_called(module: Callable[..., str]) -> None:
    @effect("unit_plain")
    def plain(call: Any) -> dict[str, Any]:
        return {"got": call}

    assert plain("x") == {"got": "x"}


def test_a_module_may_have_effects_alone(module: Callable[..., str]) -> None:
    found = load(module('from interlock import effect\n@effect("unit_alone")\ndef alone(call): ...\n'))
    assert "unit_alone" in found.effects


def test_installed_packages_name_modules_by_entry_points(
    module: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, information = module(), tmp_path / "deploys-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: deploys\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[interlock.definitions]\nmine = {name}\n")
    assert catalogue.__wrapped__(()).get("deploy").version == "1.0.0"
    (information / "entry_points.txt").write_text("[interlock.definitions]\nmine = no_such_module\n")
    with pytest.raises(InvalidDefinition, match="entry point 'mine' of deploys names 'no_such_module', which cannot"):
        catalogue.__wrapped__(())
