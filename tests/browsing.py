"""A real browser: Debian's Chromium, driven by Playwright; without it, tests say so and are skipped."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(__file__).parent / "console" / "axe.min.js"
DESKTOP, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)
LOOKS = {"desktop": (DESKTOP, False), "dark": (DESKTOP, True), "phone": (PHONE, False)}
# Two frames later, what draws itself anew for another size or colour has done so.
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
OPTIONS = [
    *("--no-sandbox", "--disable-background-networking", "--disable-component-update"),
    "--js-flags=--single-threaded",  # to compile and collect garbage in threads of their own costs a tenth more CPU
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser. Skips the test where there is none."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


class Window:
    """Somebody's browser window, which notes what goes wrong in it."""

    def __init__(self, context: BrowserContext) -> None:
        self.context, self.page = context, context.new_page()
        self.faults: list[str] = []
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))

    def sign_in(self, url: str, secret: str) -> Page:
        """Open a link as `interlock open` prints it."""
        self.page.goto(f"{url}/sign-in#{secret}")
        self.page.wait_for_url(f"{url}/")
        return self.page

    def serious(self) -> list[str]:
        """What axe-core finds that is serious or critical on the page as it stands."""
        if not self.page.evaluate("'axe' in window"):  # an init script is compiled once, and in all later pages
            self.page.add_init_script(path=AXE)
            self.page.evaluate(AXE.read_text())  # not a script element, which the page's policy would refuse
        found = self.page.evaluate("axe.run({resultTypes: ['violations']}).then((found) => found.violations)")
        return [
            f"{each['id']}: {each['help']}: {[node['html'][:120] for node in each['nodes'][:3]]}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ]

    def looks(self) -> Iterator[str]:
        """Show the page as it stands on a screen, in the dark and on a phone, one after the other: the names."""
        for name, (size, dark) in LOOKS.items():
            self.page.set_viewport_size(size)
            self.page.emulate_media(color_scheme="dark" if dark else "light")
            self.page.evaluate(DRAWN)
            yield name

    def unreadable(self) -> dict[str, list[str]]:
        """In which looks the page as it stands keeps somebody out, and by what."""
        found = {}
        for look in self.looks():
            wide = self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
            found[look] = self.serious() + ["it is wider than the window"] * wide
        return {look: wrong for look, wrong in found.items() if wrong}


@contextmanager
def window(browser: Browser, size: ViewportSize = DESKTOP) -> Iterator[Window]:
    """A window with cookies of its own."""
    context = browser.new_context(viewport=size, reduced_motion="reduce")  # or a change of looks would take 0.3 s
    context.set_default_timeout(30_000)
    try:
        yield Window(context)
    finally:
        context.close()
