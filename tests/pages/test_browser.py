"""Pages of every kind in a browser: on a desktop, a phone, a dark screen and on paper; and the README's picture."""

import base64
import io
import re
import shutil
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

import costar_cli as costar
from costar_cli.api.cohorts import answer_many
from costar_cli.api.estimates import plan_request
from costar_cli.api.pages import html_of
from costar_cli.config.requests import WhatIfRequest
from costar_cli.questions import Question, choose_subjects, join_places
from costar_cli.questions.sensitivity import sensitivity
from costar_cli.report.figures.style import PLAN_COLOURS
from costar_cli.report.pages.averages import averages_page
from costar_cli.report.pages.whatif import subjects_page, whatif_page
from docs.pictures import HEIGHT, IMG, WIDTH, browser, screenshot, whatif
from tests.pages.reading import read_alone

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")]
needs_browser = pytest.mark.skipif(browser() is None, reason="no headless browser is installed")

PHONE: Final = 390
WIDE: Final = 1200
FIRST: Final = {"whatif", "subjects", "sensitivity", "search", "averages"}  # pages that begin with answer and figure
KINDS: Final = (*sorted(FIRST), "effects", "data", "card")
SIZES: Final = {"train": 60, "val": 30, "test": 10, "target_train": 6, "target_val": 6, "target_test": 6, "steps": 24}
PLANS: Final = {
    "watch": [{}, {}],
    "chemo": [{"chemotherapy": 1}, {}],
    "both": [{"chemotherapy": 1, "radiotherapy": 1}, {}],
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind, of one small data set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", costar.CostarWarning)  # few patients
        dataset = costar.simulate("tumor", gamma=4, preset="quick", seed=1, **SIZES)
        model = costar.fit(dataset, "mixed", preset="quick", threads=1)
        one, two = (
            costar.estimate_outcomes(model, dataset, PLANS, subject=subject, origin=10, truth=True)
            for subject in dataset["source/test"].subject_id[:2].tolist()
        )
        objective: Any = {"minimise": "tumour_volume at end", "at_most": "chemotherapy 2"}
        found = costar.search_plans(model, dataset, subject=one.history.name, steps=4, origin=10, **objective)
        effects = costar.estimate_effects(dataset, PLANS, origin=3, learner="regression", unsupported=True)
        scores = costar.evaluate_models(model, dataset, bootstrap=20)
        places = choose_subjects(dataset, "source/train")
        question = Question.read(
            WhatIfRequest(origin=3, average=True, truth=True), {"mixed": model.fitted}, join_places(dataset, places),
            places, lambda origin, begin: plan_request(PLANS, dataset.schema, 6, origin=origin, begin=begin),
            dataset=dataset, skip=True,
        )  # fmt: skip
        averages = answer_many(question).averages
        html = {
            "whatif": html_of(one),
            "subjects": subjects_page([one, two]),
            "sensitivity": whatif_page(one, one.parents, bounds=[sensitivity(answers) for answers in one.models]),
            "search": html_of(found),
            "averages": averages_page(averages, dataset.name, question.parents, question.warnings),
            "effects": html_of(effects),
            "data": html_of(dataset),
            "card": html_of(model, dataset=dataset, evaluations=[scores]),
        }
    folder = tmp_path_factory.mktemp("pages")
    for name, text in html.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return {name: folder / f"{name}.html" for name in html}


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    """A browser that is told how wide its screen is, which colours it has, and to print."""
    selenium = pytest.importorskip("selenium.webdriver", reason="no selenium")
    if browser() is None or shutil.which("chromedriver") is None:
        pytest.skip("no headless browser is installed")
    options = selenium.ChromeOptions()
    options.binary_location = browser()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(word)
    made = selenium.Chrome(options=options, service=selenium.ChromeService(shutil.which("chromedriver")))
    yield made
    made.quit()


def opened(driver: Any, page: Path, width: int, *, dark: bool = False) -> np.ndarray:
    """Open a page, and return the picture of its top, `[height, width, 3]` from 0 to 1."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.get(page.as_uri())
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")) / 255


def contents(pdf: bytes) -> list[bytes]:
    """Return what each page of a PDF draws, in its language."""
    objects = {int(one[1]): one[2] for one in re.finditer(rb"(?<!\d)(\d+) 0 obj\s*(.*?)\s*endobj", pdf, re.DOTALL)}
    drawn = []
    for text in objects.values():
        if re.search(rb"/Type\s*/Page\b", text):
            listed = re.search(rb"/Contents\s+(?:\[[^\]]*\]|\d+ 0 R)", text)
            assert listed is not None
            parts = [objects[int(number)] for number in re.findall(rb"(\d+) 0 R", listed[0])]
            streams = [re.search(rb"stream\r?\n(.*)\r?\nendstream", part, re.DOTALL)[1] for part in parts]  # type: ignore[index]
            drawn.append(b"".join(map(zlib.decompress, streams)))
    return drawn


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_fits_a_phone_and_a_desktop(driver: Any, pages: dict[str, Path], kind: str) -> None:
    for width in (PHONE, WIDE):
        image = opened(driver, pages[kind], width)
        assert image.shape[1] == width
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        answer = driver.execute_script("return document.querySelector('.answer').getBoundingClientRect().bottom")
        assert answer < 900, "the answer is on the first screen"
        assert (image.mean(axis=2) < 0.4).mean() > 0.005, "there is text that stands out"


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_dark_on_a_dark_screen_with_its_figures(driver: Any, pages: dict[str, Path], kind: str) -> None:
    assert np.median(opened(driver, pages[kind], WIDE)) == 1
    assert np.median(opened(driver, pages[kind], WIDE, dark=True)) < 0.15
    driver.execute_script("(document.querySelector('figure') || document.body).scrollIntoView()")
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")) / 255
    assert (image.min(axis=2) > 0.9).mean() < 0.05, "no figure stays white"


@pytest.mark.parametrize("kind", KINDS)
def test_no_printed_page_is_empty(driver: Any, pages: dict[str, Path], kind: str) -> None:
    opened(driver, pages[kind], WIDE)
    printed = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    drawn = contents(base64.b64decode(printed["data"]))
    assert drawn
    assert all(len(re.findall(rb"\bT[jJ]\b", page)) > 10 for page in drawn), "a page without text"
    if kind in FIRST:
        lines = len(re.findall(rb"\b[lc]\n", drawn[0]))
        assert lines > 50, "the figure is on the first page, below the answer"


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_needs_neither_network_nor_scripts(pages: dict[str, Path], kind: str) -> None:
    text = pages[kind].read_text("utf-8")
    read_alone(text)
    hosts = {address.split("/")[2] for address in re.findall(r"https?:[^\"'\s<]*", text)}
    assert hosts <= {"www.w3.org"}, "names of XML"


@needs_browser
def test_the_picture_of_a_page_shows_every_plan_in_its_colour(pages: dict[str, Path], tmp_path: Path) -> None:
    screenshot(pages["whatif"], tmp_path / "page.png")
    image = np.asarray(Image.open(tmp_path / "page.png").convert("RGB")) / 255
    assert image.shape[:2] == (HEIGHT, WIDTH)
    for colour in PLAN_COLOURS[:3]:
        assert (np.abs(image - np.array(to_rgb(colour))).max(axis=-1) < 0.02).sum() > 60, colour


def test_the_picture_of_the_readme_is_what_its_command_draws(tmp_path: Path) -> None:
    whatif(tmp_path / "whatif.png")
    made, kept = (Image.open(folder / "whatif.png").convert("RGB") for folder in (tmp_path, IMG))
    assert made.size == kept.size
    apart = np.abs(np.asarray(made, dtype=float) - np.asarray(kept, dtype=float)).max(axis=2)
    assert (apart > 40).mean() < 0.005, "`python -m docs.pictures whatif` draws it again"
