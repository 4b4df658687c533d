"""Pages in a real browser: they show something, on a light and on a dark screen, and the README's report its plans."""

import re
import warnings
from pathlib import Path

import matplotlib.image as mpimg
import numpy as np
import pytest
from matplotlib.colors import to_rgb

import costar_cli as costar
from costar_cli.report.figures.style import PLAN_COLOURS
from costar_cli.report.pages.page import Item, Page, ReportTable, Section, render
from docs.report_picture import HEIGHT, WIDTH, browser, screenshot, write_page
from tests.pages.reading import read_alone

pytestmark = pytest.mark.slow
needs_browser = pytest.mark.skipif(browser() is None, reason="no headless browser is installed")


def shown(page: Path, *, width: int, height: int, dark: bool = False) -> np.ndarray:
    """The picture that a browser takes of a page, `[height, width, 3]` from 0 to 1."""
    picture = page.with_suffix(".png")
    screenshot(page, picture, width=width, height=height, dark=dark)
    return np.asarray(mpimg.imread(picture))[..., :3]


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_the_page_in_the_colours_of_the_screen(tmp_path: Path, *, dark: bool) -> None:
    table = ReportTable("Table", "A note.", ("plan", "value"), (("watch", 1.5), ("chemo", 2.25)))
    page = Page("A page", "below", [Section("Part", texts=["Words."], tables=[table], items=[Item("why", "red")])])
    (tmp_path / "page.html").write_text(render(page), "utf-8")
    image = shown(tmp_path / "page.html", width=700, height=500, dark=dark)
    assert image.shape[:2] == (500, 700)
    ground, ink = np.median(image), image.reshape(-1, 3).mean(axis=1)
    assert bool(ground < 0.2) == dark
    assert (np.abs(ink - ground) > 0.4).mean() > 0.005, "there is text that stands out"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page whose picture is in the README, of a smaller cohort."""
    page = tmp_path_factory.mktemp("pictures") / "report.html"
    sizes = {"train": 60, "val": 30, "test": 10, "target_train": 6, "target_val": 6, "target_test": 6, "steps": 24}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", costar.CostarWarning)  # few patients
        write_page(page, subject=90, origin=10, **sizes)
    return page


def test_the_page_of_the_picture_needs_neither_network_nor_scripts(report: Path) -> None:
    text = report.read_text("utf-8")
    read_alone(text)
    assert {address.split("/")[2] for address in re.findall(r"https?:[^\"'\s<]*", text)} == {"www.w3.org"}, (
        "names of XML"
    )


@needs_browser
def test_the_picture_shows_every_plan_in_its_colour(report: Path) -> None:
    image = shown(report, width=WIDTH, height=HEIGHT)
    assert image.shape[:2] == (HEIGHT, WIDTH)
    for colour in PLAN_COLOURS[:3]:
        near = np.abs(image - np.array(to_rgb(colour))).max(axis=-1) < 0.02
        assert near.sum() > 100, colour
