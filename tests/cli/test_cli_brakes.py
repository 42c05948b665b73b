"""`interlock budget` and `interlock brake` at a terminal."""

from tests.cli.terminal import Terminal

WHY = ("--by", "ann", "--reason", "it loops")


def test_from_a_budget_to_the_release_of_its_brake(terminal: Terminal) -> None:
    (made, _) = terminal.ok("budget", "set", "--actor", "a*", "--triggers", "1/1h", "--tokens", "2M/1d", *WHY)
    assert (made["context"]["most"], made["context"]["per_seconds"]) == (1, 3600.0)
    terminal.ok("create", "story", "S-1")
    assert terminal.run("fire", "S-1", "design_complete", "--by", "a1").code == 0
    held = terminal.run("fire", "S-1", "start_coding", "--by", "a1", "--wait")
    assert "held" in held.said
    assert "a1 has used 1 triggers of 1" in held.said
    (brake,) = terminal.ok("brake", "list")
    name = brake["entity_id"]
    assert f"interlock brake release {name} --project '{brake['project']}' --reason" in held.said
    assert [each["trigger"] for each in terminal.ok("brake", "show", name)["requests"]] == ["start_coding"]
    assert "2 budgets" in terminal.run("budget", "list").said
    assert terminal.run("brake", "release", name, "--by", "mallory", "--reason", "mine").code == 2
    assert "released" in terminal.run("brake", "release", name, *WHY).said
    gone = terminal.run("brake", "show", name)
    assert (gone.code, "interlock brake list" in gone.said) == (2, True)
    assert terminal.ok("brake", "put", "instance", "S-1", *WHY)["current_state"] == "on"
    shown = terminal.run("show", "S-1").said
    assert "holds new triggers: it loops" in shown
    assert terminal.run("budget", "remove", "tokens", "--actor", "a*", *WHY).code == 0
