"""Take docs/img/report.png: the top of a report page of the README's patient, as a headless browser shows it.

python -m docs.report_picture    # a minute; needs a browser on the path: `apt-get install chromium`
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import costar_cli as costar

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "img" / "report.png"
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 860, 1020


def browser() -> str | None:
    """Return the headless browser on the path, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def write_page(path: Path, *, subject: int, origin: int, **sizes: int) -> None:
    """Write the report on a simulated patient under the plans of examples/plan.json, by mixed effects."""
    dataset = costar.simulate("tumor", gamma=10, preset="quick", **sizes)
    model = costar.fit(dataset, "mixed", preset="quick", threads=1)
    plans = ROOT / "examples" / "plan.json"
    report = costar.estimate_outcomes(
        {"mixed effects": model}, dataset, plans, subject=subject, origin=origin, truth=True
    )
    costar.write_report(report, path)


def screenshot(page: Path, picture: Path, *, width: int = WIDTH, height: int = HEIGHT, dark: bool = False) -> None:
    """Take a picture of the top of a page.

    Raises:
        RuntimeError: there is no browser, or it ended with an error.
    """
    name = browser()
    if name is None:
        raise RuntimeError(f"no headless browser is installed: {', '.join(NAMES)}")
    words = [
        name,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={width},{height}",
    ]
    words += ["--blink-settings=preferredColorScheme=0"] * dark + [f"--screenshot={picture}"]
    done = subprocess.run([*words, page.as_uri()], capture_output=True, timeout=120, check=False)  # noqa: S603
    if done.returncode or not picture.exists():
        raise RuntimeError(f"{name}: {done.stderr[-500:].decode(errors='replace')}")


def main() -> int:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_page(page, subject=424, origin=30)
        screenshot(page, PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
