"""What stands for several steps is the steps that it stands for, and says what is wrong with it."""

import json
from functools import partial

import numpy as np
import pytest

from costar_cli.data import Part
from costar_cli.errors import UsageError
from costar_cli.plans import IndexTimes, PlanRequest, parse_plans
from tests.whatif.whatif_worlds import TUMOR, make_dataset

BEGIN = partial(IndexTimes.of, make_dataset().panels[Part("source", "train")].until(11).take(np.array([0])))
CHEMO, RADIO = {"chemotherapy": 1}, {"radiotherapy": 1}


def parse(document: object, **options: int) -> PlanRequest:
    return parse_plans(json.dumps(document), TUMOR.treatments, horizon=6, **options)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"repeat": CHEMO, "times": 6}, [CHEMO] * 6),
        ({"repeat": [CHEMO, {}], "times": 3}, [CHEMO, {}] * 3),
        ({"repeat": [CHEMO, {}, {}, {}], "until": "end"}, [CHEMO, {}, {}, {}, CHEMO, {}]),
        ({"repeat": RADIO, "until": 33}, [RADIO] * 3),
        ([{}, {"repeat": CHEMO, "times": 2}, RADIO], [{}, CHEMO, CHEMO, RADIO]),
        ([{}, {}, {"repeat": CHEMO, "until": 34}], [{}, {}, CHEMO, CHEMO]),
        ([{}, {"repeat": [{"repeat": CHEMO, "times": 2}, {}], "until": "end"}], [{}, CHEMO, CHEMO, {}, CHEMO, CHEMO]),
    ],
)
def test_a_repetition_is_the_steps_written_out(short, long):
    repeated, written = (parse({"origin": 30, "plans": {"plan": plan}}).plans[0] for plan in (short, long))
    assert repeated.values.tolist() == written.values.tolist()


def test_a_repetition_may_stand_alone_in_its_file_with_its_origin():
    request = parse({"origin": 3, "repeat": CHEMO, "until": 5})
    assert (request.origin, len(request.plans[0])) == (3, 2)


@pytest.mark.parametrize(
    ("origins", "steps"),
    [({"begin": BEGIN}, 3), ({"origin": 11, "begin": BEGIN}, 2), ({"origin": 8}, 5)],
)
def test_until_counts_from_the_origin_that_is_asked_for_or_the_last_step(origins, steps):
    assert len(parse({"repeat": {}, "until": 13}, **origins).plans[0]) == steps


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"repeat": CHEMO}, "plan 'p': there is neither `times` nor `until`: it never ends"),
        ({"repeat": CHEMO, "times": 2, "until": "end"}, "plan 'p': there is both `times` and `until`"),
        ({"repeat": CHEMO, "times": 0}, "plan 'p': `times` must be a whole number from 1, not 0"),
        ({"repeat": CHEMO, "times": True}, "`times` must be a whole number from 1, not true"),
        ({"repeat": CHEMO, "times": 10**12}, "plan 'p': has more than 1,000 steps; the model answers plans of 1 to 6"),
        ({"repeat": CHEMO, "time": 2}, "unknown key 'time'; did you mean 'times'?"),
        ({"repeat": [], "times": 2}, "plan 'p': `repeat` is empty"),
        ({"repeat": CHEMO, "until": "2024-02-31"}, 'a date such as "2024-03-01" or "end", not \'2024-02-31\''),
        ({"repeat": CHEMO, "until": 30}, "`until` 30 is not among the steps that the model predicts, 31 to 36"),
        ({"repeat": CHEMO, "until": 37}, "`until` 37 is not among the steps that the model predicts, 31 to 36"),
        ([{}, {}, {"repeat": CHEMO, "until": 32}], "`until` 32 leaves no step: 2 steps come before it"),
        ({"repeat": {"chemoterapy": 1}, "times": 2}, "plan 'p', steps 1, 2: no treatment 'chemoterapy'"),
        ({"repeat": [[]], "times": 2}, "a step must be an object"),
    ],
)
def test_what_a_repetition_lacks_is_named_with_its_plan(plan, problem):
    with pytest.raises(UsageError) as caught:
        parse({"origin": 30, "plans": {"p": plan}})
    assert problem in "\n".join([caught.value.problem, *caught.value.details])
    assert caught.value.fix


def test_a_step_to_repeat_until_needs_one_origin():
    with pytest.raises(UsageError, match="each subject has its own origin"):
        parse({"repeat": CHEMO, "until": 12})


@pytest.mark.parametrize("plan", [{"repeat": CHEMO, "until": "2024-03-01"}, {"at": {"2024-03-01": CHEMO}}])
def test_dates_are_refused_where_no_subjects_have_them(plan):
    with pytest.raises(UsageError, match="cannot be the date 2024-03-01"):
        parse({"origin": 3, "plans": {"a": plan}})
    with pytest.raises(UsageError, match="keeps no dates") as caught:
        parse({"origin": "2024-03-01", "plans": {"a": [CHEMO]}}, begin=BEGIN)
    assert "tables whose times are dates keep them" in str(caught.value.fix)
