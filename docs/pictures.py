"""Draw pictures of docs/img again: those of the README, of reports and own data, and what pages' commands draw.

python -m docs.pictures                  # all; minutes, and `report` needs a browser: `apt-get install chromium`
python -m docs.pictures whatif search    # some of whatif, report, data-report, search, target, gallery-shelves, ...
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

import costar_cli as costar
from costar_cli.questions import WhatIfReport
from tests.docs.pages import RUNNABLE

ROOT = Path(__file__).resolve().parents[1]
IMG = ROOT / "docs" / "img"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 860, 1020  # of the picture of a page
OF_DATA = ("lengths", "treatments", "outcomes", "shifts")


def patient(*, subject: int = 424, origin: int = 30, **sizes: int) -> WhatIfReport:
    """Return the README's patient under the plans of examples/plan.json, by mixed effects, with the truth."""
    dataset = costar.simulate("tumor", gamma=10, preset="quick", **sizes)
    model = costar.fit(dataset, "mixed", preset="quick", threads=1)
    plans = ROOT / "examples" / "plan.json"
    return costar.estimate_outcomes(
        {"mixed effects": model}, dataset, plans, subject=subject, origin=origin, truth=True
    )


def png(drawn: Any, path: Path, dpi: int = 150) -> None:  # noqa: ANN401 - a figure of matplotlib
    """Save a figure with few colours."""
    content = io.BytesIO()
    drawn.savefig(content, format="png", dpi=dpi, facecolor="white")
    Image.open(content).convert("RGB").quantize(128).save(path, optimize=True)


def whatif(path: Path) -> None:
    """Draw the patient's history and outcomes under three plans."""
    png(patient().plot(), path)


def report(path: Path) -> None:
    """Take a picture of the top of the patient's page."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        costar.write_report(patient(), page)
        screenshot(page, path)


def data_report(path: Path) -> None:
    """Draw pictures of the report on the table in examples/own-data, one below the other."""
    from costar_cli.data.report import describe_dataset  # noqa: PLC0415
    from costar_cli.report.figures.data import figures  # noqa: PLC0415

    example = ROOT / "examples" / "own-data"
    dataset = costar.read_table(example / "small.csv", schema=example / "schema.toml")
    with tempfile.TemporaryDirectory() as folder:
        made = [
            (Path(folder) / name, drawn) for name, _, drawn in figures(describe_dataset(dataset)) if name in OF_DATA
        ]
        for file, drawn in made:
            png(drawn, file.with_suffix(".png"), dpi=110)
        images = [Image.open(file.with_suffix(".png")).convert("RGB") for file, _ in made]
    whole = Image.new("RGB", (max(i.width for i in images), sum(i.height for i in images)), "white")
    top = 0
    for image in images:
        whole.paste(image, (0, top))
        top += image.height
    whole.quantize(64).save(path, optimize=True)


def of_commands(page: Path, path: Path) -> None:
    """Run the commands of a page, show what they print, and keep the picture that they draw."""
    script = "\n".join(match["script"] for match in RUNNABLE.finditer(page.read_text("utf-8")))
    env = {name: value for name, value in os.environ.items() if not name.startswith("COSTAR_")}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        shell = ["bash", "-ec", script]
        subprocess.run(shell, cwd=folder, env=env, check=True)  # noqa: S603 - the page's own
        drawn = Image.open(Path(folder) / f"{path.stem.removeprefix('gallery-')}.png")
        drawn.convert("RGB").quantize(128).save(path, optimize=True)


PICTURES: Mapping[str, Callable[[Path], None]] = {
    "whatif": whatif,
    "report": report,
    "data-report": data_report,
    "search": partial(of_commands, ROOT / "docs" / "search.md"),
    "target": partial(of_commands, ROOT / "docs" / "target.md"),
} | {
    path.stem: partial(of_commands, ROOT / "docs" / "gallery" / f"{path.stem.removeprefix('gallery-')}.md")
    for path in sorted(IMG.glob("gallery-*.png"))
}


def browser() -> str | None:
    """Return the headless browser on the path, None where there is none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def screenshot(page: Path, picture: Path, *, width: int = WIDTH, height: int = HEIGHT) -> None:
    """Take a picture of the top of a page.

    Raises:
        RuntimeError: there is no browser, or it ended with an error.
    """
    name = browser()
    if name is None:
        raise RuntimeError(f"no headless browser is installed: {', '.join(BROWSERS)}")
    words = [name, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    words += [f"--window-size={width},{height}", f"--screenshot={picture}", page.as_uri()]
    done = subprocess.run(words, capture_output=True, timeout=120, check=False)  # noqa: S603
    if done.returncode or not picture.exists():
        raise RuntimeError(f"{name}: {done.stderr[-500:].decode(errors='replace')}")


def main(names: list[str]) -> int:
    """Write the pictures that are named, or all."""
    for name in names or PICTURES:
        PICTURES[name](IMG / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
