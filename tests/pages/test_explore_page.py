"""The page of `costar explore` in a real browser: choose, click, compare, search, keys, a phone, and a frozen page.

The browser is Chromium with its driver; where either or selenium is missing, these tests are skipped.
"""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import costar_cli as costar
from costar_cli.cli.exploring.explorer import Explorer
from costar_cli.cli.exploring.server import ExploreServer
from costar_cli.plans.untrusted import JsonObject
from costar_cli.report.pages.explore import explore_page
from docs.pictures import browser
from tests.cli.cli_world import REPOSITORY
from tests.pages.reading import EVIL, read

WORLD = REPOSITORY / "tests" / "contract" / "world"
slow = pytest.mark.slow
PLAN_B, PLAN_C = "#cards .card:nth-child(2)", "#cards .card:nth-child(3)"


@pytest.mark.parametrize("served", [True, False])
def test_names_cannot_leave_the_data_of_the_page(*, served: bool) -> None:
    content = {"about": {"dataset": f"</script>{EVIL}<!--<script>", "[[SCRIPT]]": "[[CONTENT]]"}, "frozen": None}
    page, policy = explore_page(content, served=served)
    reader = read(page)
    assert reader.tags.count("script") == 2
    assert reader.outside == ["link href=data:,"]
    assert {"img", "iframe", "object", "b"}.isdisjoint(reader.tags)
    begin = page.index('id="content">') + len('id="content">')
    assert json.loads(page[begin : page.index("</script>", begin)]) == content
    assert len(set(reader.ids)) == len(reader.ids)
    assert policy in page
    assert "unsafe" not in policy
    assert ("connect-src 'self'" in policy) == served
    assert "innerHTML" not in page
    assert "http://www.w3.org/2000/svg" in page
    assert page.count("://") == 1, "it names no other site"


@dataclass(frozen=True)
class Screen:
    """A browser that shows the page; `answers` counts what the page has shown."""

    driver: Any

    def run(self, script: str, *given: object) -> Any:
        return self.driver.execute_script(script, *given)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def count(self, selector: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def click(self, selector: str, n: int = 0) -> None:
        found = self.driver.find_elements("css selector", selector)[n]
        self.run("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()

    def until(self, holds: Callable[[], object]) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 30, poll_frequency=0.05).until(lambda _: holds())

    def answered(self, act: Callable[[], object]) -> None:
        """Do something, and wait until the page shows the answer to it."""
        before = self.answers
        act()
        self.until(lambda: self.answers > before)

    @property
    def answers(self) -> int:
        return int(self.run("return Number(document.body.dataset.answers || 0)"))

    def open(self, address: str) -> None:
        self.driver.get(address)
        self.until(lambda: self.answers >= 1)

    def value(self, selector: str, value: str, kind: str) -> None:
        self.run(
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event(arguments[2], {bubbles: true}))", selector, value, kind,
        )  # fmt: skip

    @property
    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    @property
    def overflows(self) -> bool:
        return bool(self.run("return document.documentElement.scrollWidth > innerWidth"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    program, chromium = shutil.which("chromedriver"), browser()
    if program is None or chromium is None:
        pytest.skip("no Chromium with a driver is installed")
    options = webdriver.ChromeOptions()
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,1000",
    ):
        options.add_argument(flag)
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    folder = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(program))
    made.downloads = folder
    yield made
    made.quit()


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    dataset = replace(costar.read_dataset(WORLD / "tumor" / "data.h5"), name="tumour <img src=x onerror=alert(1)>")
    names = ("model-mixed", "model-ridge")
    models = {name: costar.load_model(WORLD / "tumor" / f"{name}.h5", device="cpu").fitted for name in names}
    return Explorer(dataset=dataset, models=models, first=("200",))


@pytest.fixture(scope="module")
def address(explorer: Explorer) -> Iterator[str]:
    def stop(_: JsonObject) -> str:
        raise KeyboardInterrupt

    with ExploreServer(0) as server:
        page, policy = explore_page({"about": explorer.describe(), "frozen": None}, served=True)
        questions = {name: getattr(explorer, name) for name in ("answer", "near", "report", "search", "subjects")}

        def run() -> None:
            with suppress(KeyboardInterrupt):
                server.run(page, policy, questions)

        thread = threading.Thread(target=run)
        thread.start()
        yield server.address
        server.ask(stop, JsonObject())
        thread.join(10)


@pytest.fixture
def screen(driver: Any, address: str) -> Iterator[Screen]:
    shown = Screen(driver)
    shown.open(address)
    shown.answered(lambda: shown.value("#origin", "6", "input"))
    yield shown
    assert shown.complaints == [], "no error and no violation of the policy"


@slow
def test_a_click_changes_curve_band_difference_and_support(screen: Screen, explorer: Explorer) -> None:
    curve = "return document.querySelector('#chart .p1 .curve').getAttribute('d')"
    before = screen.run(curve)
    assert "would be" in screen.text("#headline")
    screen.answered(lambda: screen.click(f"{PLAN_B} .cell"))
    plans = {"No treatment": [{}] * 3, "Plan B": [{"chemotherapy": 1}, {}, {}]}
    answer = explorer.answer(JsonObject(model="model-mixed", subject="200", origin=6, plans=plans))
    found = answer["plans"][1]["outcomes"][0]
    headline = screen.text("#headline").replace("\N{MINUS SIGN}", "-")
    digits = 2 if found["estimate"][-1] < 10 else 1
    for value in (found["estimate"][-1], abs(found["difference"][-1])):
        assert any(f"{value:.{places}f}" in headline for places in (digits - 1, digits, digits + 1)), headline
    assert "90\N{NO-BREAK SPACE}% band" in headline
    assert "than under No treatment" in headline
    assert screen.run(curve) != before
    assert screen.count("#chart .band") == 2
    assert screen.run(f"return document.querySelector('{PLAN_B} .cell').getAttribute('aria-pressed')") == "true"
    words = {"green": "Well supported", "amber": "Rare in the data", "red": "Not supported"}
    assert words[answer["plans"][1]["support"]["worst"]] in screen.text("#verdict")
    assert "chemotherapy" in screen.text(f"{PLAN_B} .plan-words")


@slow
def test_up_to_four_plans_are_compared_renamed_and_removed(screen: Screen) -> None:
    screen.answered(lambda: screen.click("#add"))
    screen.answered(lambda: screen.click(f"{PLAN_C} .cell", 3))
    screen.answered(lambda: screen.click(f"{PLAN_C} .copy"))
    assert screen.count("#cards .card") == screen.count("#table tbody tr") == screen.count("#chart .curve") == 4
    assert screen.run("return document.querySelector('#add').disabled")
    assert screen.text("#table tbody tr:nth-child(3) td:nth-child(2)") == screen.text(
        "#table tbody tr:nth-child(4) td:nth-child(2)"
    )
    evil = "<img src=x onerror=alert(1)>"
    screen.answered(lambda: screen.value(f"{PLAN_C} .row input", evil, "change"))
    assert evil in screen.text("#table")
    assert evil in screen.text("#command")
    assert "onerror" in screen.text("#about"), "the data set's name is text, too"
    assert screen.count("img") == 0
    assert screen.run("return document.activeElement.ariaLabel") == "Name of plan D", "the focus goes to the copy"
    screen.answered(lambda: screen.click(f"{PLAN_C} button[title=Remove]"))
    assert screen.count("#cards .card") == screen.count("#chart .curve") == 3
    assert evil not in screen.text("#command")


@slow
def test_models_subjects_and_origins_are_chosen(screen: Screen) -> None:
    first = screen.text("#headline")
    screen.answered(lambda: screen.value("#model", "model-ridge", "change"))
    assert "by model-ridge" in screen.text("#chart-title")
    assert screen.text("#headline") != first
    screen.answered(lambda: screen.click("#next"))
    assert "subject 201" in screen.text("#chart-title")
    screen.answered(lambda: screen.value("#subject", "7", "change"))
    assert "subject 7," in screen.text("#chart-title")
    assert screen.text("#part") == "source/train"
    screen.answered(lambda: screen.value("#subject", "nobody", "change"))
    assert screen.text("#problem").startswith("No subject nobody")
    assert screen.run("return document.querySelector('#problem').getAttribute('role')") == "alert"
    screen.answered(lambda: screen.value("#subject", "200", "change"))
    assert not screen.run("return document.querySelector('#problem').offsetParent"), "the message is gone"
    assert [message for message in screen.complaints if " 400 " not in message] == []


@slow
def test_everything_is_reached_by_keys(screen: Screen) -> None:
    from selenium.webdriver.common.keys import Keys

    def active(what: str) -> str:
        return str(screen.run(f"return document.activeElement.{what}"))

    cell = screen.driver.find_elements("css selector", f"{PLAN_B} .cell")[0]
    screen.run("arguments[0].focus()", cell)
    label = active("getAttribute('aria-label')")
    assert label == "chemotherapy, day 6, plan B"
    for key, wanted in ((Keys.ARROW_RIGHT, "chemotherapy, day 7"), (Keys.ARROW_DOWN, "radiotherapy, day 7"),
                        (Keys.END, "radiotherapy, day 8"), (Keys.ARROW_RIGHT, "radiotherapy, day 8")):  # fmt: skip
        screen.driver.switch_to.active_element.send_keys(key)
        assert active("getAttribute('aria-label')").startswith(wanted)
    screen.answered(lambda: screen.driver.switch_to.active_element.send_keys(Keys.SPACE))
    assert active("getAttribute('aria-pressed')") == "true", "the focus stays where it was"
    assert "day 6-7 none, then radiotherapy" in screen.text(f"{PLAN_B} .plan-words")
    chart = screen.driver.find_element("id", "chart")
    screen.run("arguments[0].focus()", chart)
    assert "On day 9" in screen.text("#headline")
    chart.send_keys(Keys.ARROW_LEFT)
    assert "On day 8" in screen.text("#headline")
    assert active("getAttribute('aria-valuetext')") == "day 8"
    assert "day 8" in screen.text("#table-title")
    unnamed = screen.run(
        """return [...document.querySelectorAll("button, input, select")].filter((e) => e.offsetParent &&
        !(e.textContent.trim() || e.ariaLabel || e.getAttribute("aria-labelledby") || e.labels?.length)).length"""
    )
    assert unnamed == 0


@slow
def test_a_search_adds_its_plan_and_the_report_is_saved(screen: Screen) -> None:
    screen.click("#search-go")
    screen.until(lambda: screen.count("#found li") > 0)
    assert "costar search" in screen.text("#found pre")
    screen.answered(lambda: screen.click("#found li button"))
    assert (
        screen.run("return document.querySelectorAll('#cards .card')[2].querySelector('.row input').value") == "Best 1"
    )
    assert "Best 1" in screen.text("#table")
    screen.click("#save")
    screen.until(lambda: "Saved" in screen.text("#message"))
    page = Path(screen.driver.downloads) / "whatif.html"
    screen.until(page.exists)
    assert "<h1>What if: subject 200</h1>" in page.read_text("utf-8")
    screen.click("#copy")
    screen.until(lambda: screen.text("#message").startswith(("Copied", "Selected")))


@slow
@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_sideways_scrolling(screen: Screen, *, dark: bool) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    screen.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    theme = {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]}
    screen.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", theme)
    try:
        screen.answered(lambda: screen.click(f"{PLAN_B} .cell"))
        assert screen.run("return innerWidth") == 390
        assert not screen.overflows
        parts = screen.run("return [...document.querySelectorAll('section')].map(e => e.getBoundingClientRect().right)")
        assert max(parts) <= 390
        ground = screen.run("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) < 3 * 60) == dark
    finally:
        screen.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        screen.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@slow
def test_a_frozen_page_opens_from_a_file_and_answers_without_a_server(
    driver: Any, explorer: Explorer, tmp_path: Path
) -> None:
    about = replace(explorer, first=("200", "201"))
    text, _ = explore_page({"about": about.describe(), "frozen": about.freeze()}, served=False)
    (tmp_path / "page.html").write_text(text, "utf-8")
    screen = Screen(driver)
    screen.open((tmp_path / "page.html").as_uri())
    before = screen.text("#headline")
    screen.answered(lambda: screen.click(f"{PLAN_B} .cell"))
    assert screen.text("#headline") != before
    screen.answered(lambda: screen.click("#next"))
    assert "subject 201" in screen.text("#chart-title")
    assert screen.run("return document.querySelector('#cards .card .cell').disabled"), "the reference stays"
    assert not screen.run("return document.querySelector('#search').offsetParent"), "nothing is searched"
    assert screen.complaints == []


@slow
def test_a_page_whose_server_has_ended_says_so(driver: Any, explorer: Explorer) -> None:
    text, policy = explore_page({"about": explorer.describe(), "frozen": None}, served=True)
    with ExploreServer(0) as server:

        def stop(_: JsonObject) -> str:
            raise KeyboardInterrupt

        def run() -> None:
            with suppress(KeyboardInterrupt):
                server.run(text, policy, {"answer": explorer.answer, "subjects": explorer.subjects})

        thread = threading.Thread(target=run)
        thread.start()
        screen = Screen(driver)
        screen.open(server.address)
        server.ask(stop, JsonObject())
        thread.join(10)
    screen.answered(lambda: screen.click(f"{PLAN_B} .cell"))
    assert "has stopped" in screen.text("#problem")
    screen.complaints  # noqa: B018 - the refused connection is in the log, which is emptied
