"""The page of `costar explore`: one HTML file with its styles and its script, served or by itself."""

import json
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Final

ASSETS: Final = files("costar_cli.report.pages") / "templates"
SAFE: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}  # no text of the data ends the element that it is in


def explore_page(content: object, *, served: bool) -> tuple[str, str]:
    """Return the page and its Content-Security-Policy, which the page also names itself.

    Args:
        content: plain JSON data: what there is to choose from, and of a page by itself the answers.
        served: whether a server answers it; otherwise it may reach nothing at all.
    """
    page, style, script = ((ASSETS / f"explore.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for sign, escaped in SAFE.items():
        text = text.replace(sign, escaped)
    hashes = [b64encode(sha256(part.encode()).digest()).decode() for part in (style, script)]
    connected = "'self'" if served else "'none'"
    policy = (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; img-src data:; "
        f"connect-src {connected}; base-uri 'none'; form-action 'none'"
    )
    for name, part in (("POLICY", policy), ("STYLE", style), ("SCRIPT", script), ("CONTENT", text)):
        page = page.replace(f"[[{name}]]", part, 1)
    return page, policy
