"""Part of `events`: from a move to the page of the console that shows it, in a real browser, under the same load."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles

from bench.finding import Bar, Finding
from bench.plant import PATIENCE_SECONDS, Plant
from bench.progress import Rounds
from interlock.workers.overrides.console_sessions import make_link
from interlock.workers.overrides.tokens import TokenTerms
from interlock.workers.overrides.transaction import OverrideOrder

AT_ONCE = 50  # triggers fired one by one between two looks at whether the round is over
CHANGES = 40  # of the instance whose page is open, in a round
ARGUMENTS = ("--no-sandbox", "--disable-background-networking", "--disable-component-update")
SAID = "from an event to the console's page in Chromium, under load"
SHOWN = """(state) => {
  const shown = document.querySelector("h1 .state");
  return shown && shown.textContent.trim().endsWith(state) && Date.now();
}"""


def measure(plant: Plant, port: int, rounds: Rounds) -> list[Finding]:
    """p50 and p99 of each round, from the event's own time to the change in the page."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it is for developers
    except ImportError:
        return [Finding("events.browser", SAID, "s", note="not measured: there is no Playwright")]
    if chromium is None:
        return [Finding("events.browser", SAID, "s", note="not measured: there is no Chromium")]
    terms, order = TokenTerms("bench-viewer", "read-only", None), OverrideOrder("bench", "a benchmark")
    link = make_link(plant.client.runtime, terms, order).token
    shown = plant.client.create("story", "shown")["id"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        page = browser.new_page()
        page.set_default_timeout(1_000 * PATIENCE_SECONDS)
        page.goto(f"http://127.0.0.1:{port}/sign-in#{link}")
        page.wait_for_url(f"http://127.0.0.1:{port}/")
        page.goto(f"http://127.0.0.1:{port}/instances/{shown}")
        page.wait_for_function(SHOWN, arg="analysis")

        def lateness(number: int) -> float:
            trigger, state = (("block", "blocked"), ("unblock", "implementation"))[number % 2]
            plant.client.fire(shown, trigger, by="bench")
            seen = page.wait_for_function(SHOWN, arg=state).json_value() / 1_000
            return float(seen - plant.client.history(shown)[-1]["created_at"].timestamp())

        def looked() -> list[float]:
            return [lateness(number) for number in range(CHANGES)]

        figures = [_meanwhile(lambda: plant.accept(AT_ONCE), looked) for _ in rounds]
        browser.close()
    p50 = tuple(median(each) for each in figures)
    p99 = tuple(quantiles(each, n=100, method="inclusive")[98] for each in figures)
    note = f"{CHANGES} changes a round"
    return [
        Finding("events.browser.p50", SAID, "s", p50, note=note),
        Finding("events.browser.p99", SAID, "s", p99, bar=Bar("≤", 1.0), note=note),
    ]


def _meanwhile(load: Callable[[], object], look: Callable[[], list[float]]) -> list[float]:
    """What `look` gives while `load` is repeated without a pause."""
    over = False

    def loading() -> None:
        while not over:
            load()

    with ThreadPoolExecutor(1) as threads:
        loaded = threads.submit(loading)
        try:
            found = look()
        finally:
            over = True
        loaded.result()
    return found
