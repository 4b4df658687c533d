"""Searches where visits are at any time: what is compared is seen at the same times."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import PanelSchema, TreatmentEncoding, Variable
from costar_cli.data.dose import Dose
from costar_cli.errors import UsageError
from costar_cli.plans import TreatmentPlan
from costar_cli.plans.doses import Sweep
from costar_cli.questions.search import SearchRequest
from tests.whatif.whatif_worlds import LinearModel

USUAL = 7.0
SCHEMA = PanelSchema(
    treatments=TreatmentEncoding(
        mode="multilabel", names=("drug",), levels=(("off", "on"),),
        doses=(Dose(name="mg", low=0, high=8), Dose(name="elapsed", unit="day", low=1, high=30, elapsed=USUAL)),
    ),
    outcomes=(Variable(name="y"),),
)  # fmt: skip
ASKED = SearchRequest(minimise=("y at end",), steps=2, unsupported=True)


def plan(name: str, *gaps: float, drug: int = 0) -> TreatmentPlan:
    return TreatmentPlan(name, np.array([[drug, 0.0, gap] for gap in gaps]))


def asked(**changed: object):
    return replace(ASKED, **changed).question(LinearModel(SCHEMA))


def test_a_search_does_not_choose_when_visits_are() -> None:
    with pytest.raises(UsageError, match="the time until the next visit: plans would end at different dates") as error:
        asked(levels=("elapsed 1,30",))
    assert '{"after": "14 days"}' in (error.value.fix or "")
    assert set(asked(levels=("mg 0,2",)).candidates.values_KA[:, 2]) == {USUAL}


def test_a_sweep_of_the_time_between_visits_is_refused() -> None:
    with pytest.raises(UsageError, match="plans would end at different dates"):
        Sweep.parse("elapsed 1:21:10", SCHEMA.treatments)
    alone = TreatmentEncoding(mode="multilabel", names=("drug",), levels=(("off", "on"),),
                              doses=SCHEMA.treatments.doses[1:])  # fmt: skip
    with pytest.raises(UsageError, match="no doses"):
        Sweep.parse("dose 0:3:1", alone)
    with pytest.raises(UsageError, match="there is no dose 'dose'") as error:
        Sweep.parse("dose 0:3:1", SCHEMA.treatments)
    assert (error.value.fix or "").endswith("; of mg")


@pytest.mark.parametrize(
    ("plans", "reference", "said"),
    [
        ((plan("soon", 1, 2), plan("late", 30, 60)), None, r"step 2 .* after 3 days (\(soon\)) and 90 days (\(late\))"),
        ((plan("soon", 1, 2),), plan("none", 7, 7), r"after 3 days \(soon\) and 14 days \(none\)"),
        (None, plan("none", 1, 2), r"after 14 days \(others\) and 3 days \(none\)"),
    ],
)
def test_plans_that_end_at_different_times_are_not_compared(plans, reference, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked(only_from=plans, reference=reference)


def test_plans_of_a_list_that_end_together_are_compared_with_no_treatment_that_does() -> None:
    listed = plan("a", 3, 11, drug=1), plan("b", 10, 4, drug=1)
    np.testing.assert_array_equal(asked(only_from=listed).reference.values, [[0, 0, 3], [0, 0, 11]])
    early = plan("a", 1, 2, drug=1), plan("b", 2, 1, drug=1)
    np.testing.assert_array_equal(asked(only_from=early).reference.values[:, 2], [1, 2])
    with pytest.raises(UsageError, match="step 1 of plans is seen after 1 days"):
        asked(only_from=early, minimise=("y at step 1",))


@pytest.mark.parametrize("least", [0.0, 2.0])
def test_a_beam_keeps_beginnings_that_are_good_if_nothing_follows(least: float) -> None:
    """Treating once and then stopping is best, but the beginning looks bad if the treatment goes on."""
    found = asked(levels=(f"mg {least:g},8",), steps=3, beam=3).candidates
    assert found.nothing is not None
    assert found.values_KA[found.nothing].tolist() == [0, least, USUAL]

    def loss(plans_PH: np.ndarray) -> np.ndarray:
        given_P = (found.values_KA[plans_PH][:, :, 0] != 0).sum(axis=1)
        return np.where(given_P == 1, -1.0, given_P).astype(float)

    promise = found._promise(np.array([[found.nothing], [found.values_KA[:, 0].argmax()]], np.uint16), loss)
    assert promise.tolist() == [0, -1]


def test_the_time_until_the_next_visit_counts_as_no_treatment() -> None:
    found = asked(levels=("mg 0,2",)).candidates
    assert dict(zip(map(tuple, found.values_KA.tolist()), found.treatments_K.tolist(), strict=True)) == {
        (0, 0, USUAL): 0, (1, 0, USUAL): 1, (0, 2, USUAL): 1, (1, 2, USUAL): 2,
    }  # fmt: skip
