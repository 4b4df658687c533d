"""A page in a real browser: it shows something, on a light and on a dark screen."""

import shutil
import subprocess
from pathlib import Path

import matplotlib.image as mpimg
import numpy as np
import pytest

from costar_cli.pages.page import Item, Page, ReportTable, Section, render

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no headless browser is installed")
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_the_page_in_the_colours_of_the_screen(tmp_path: Path, *, dark: bool) -> None:
    table = ReportTable("Table", "A note.", ("plan", "value"), (("watch", 1.5), ("chemo", 2.25)))
    page = Page("A page", "below", [Section("Part", texts=["Words."], tables=[table], items=[Item("why", "red")])])
    (tmp_path / "page.html").write_text(render(page), "utf-8")
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=700,500"]
    words += ["--blink-settings=preferredColorScheme=0"] * dark + [f"--screenshot={tmp_path / 'page.png'}"]
    done = subprocess.run([*words, (tmp_path / "page.html").as_uri()], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    image = mpimg.imread(tmp_path / "page.png")[..., :3]
    assert image.shape[:2] == (500, 700)
    ground, ink = np.median(image), image.reshape(-1, 3).mean(axis=1)
    assert bool(ground < 0.2) == dark
    assert (np.abs(ink - ground) > 0.4).mean() > 0.005, "there is text that stands out"
