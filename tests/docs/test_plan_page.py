"""Every file of plans that docs/plans.md and docs/rules.md show can be asked as it stands."""

import re
from functools import partial

import pytest

from costar_cli.plans import IndexTimes, parse_plans
from tests.cli.cli_world import REPOSITORY
from tests.dose_worlds import linear_doses
from tests.plans.test_dates import PANEL
from tests.whatif.whatif_worlds import RETAIL, TUMOR

PAGES = [(REPOSITORY / "docs" / name).read_text("utf-8") for name in ("plans.md", "rules.md")]
SHOWN = [block for page in PAGES for block in re.findall(r"```(json|csv)\n(.*?)```", page, re.DOTALL)]


@pytest.mark.parametrize(("kind", "text"), SHOWN)
def test_a_file_of_plans_on_the_pages_is_understood(kind: str, text: str):
    schema, where = TUMOR, f"plans.{kind}"
    if "natural dose" in text:
        schema = linear_doses(60).schema
    elif "price_change" in text:
        schema, text = RETAIL, '{"plans": ' + text.replace("price_change", "price_class") + "}"
    dated = {"begin": partial(IndexTimes.of, PANEL)} if "2024" in text else {}
    request = parse_plans(text, schema, horizon=6, where=where, **dated)
    assert request.horizon <= 6
    assert len(request.plans) + len(request.by_subject)


def test_the_pages_show_every_form():
    assert [kind for kind, _ in SHOWN] == ["json", "json", "csv", *["json"] * 5]
    for form in (
        "repeat",
        "times",
        "until",
        "at",
        "shift",
        "rule",
        "else",
        "with probability",
        "in last",
        "natural",
        "odds",
    ):
        assert any(form in text for _, text in SHOWN), form
