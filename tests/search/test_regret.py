"""Regret is what a plan loses against the best that the simulator knows: nothing for who knows the truth."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from costar_cli.cli.regret import _sizes
from costar_cli.data import Dataset, Part
from costar_cli.data.tumor.simulate import TUMOR_SCHEMA, tumor_truth
from costar_cli.errors import UsageError
from costar_cli.questions.search.regret import Regret, _nearest, regrets
from costar_cli.questions.search.request import SearchRequest
from costar_cli.reporting import NullReporter
from tests.codes import said
from tests.datasets import m5_worlds
from tests.whatif.whatif_worlds import LinearModel, make_dataset

REQUEST = SearchRequest(minimise=("tumour_volume at end",), cost=("chemotherapy 0.1", "radiotherapy 0.1"), steps=3)


@dataclass
class Knowing(LinearModel):
    """Answers as the simulator does; `sign` -1 believes the opposite of every effect."""

    dataset: Dataset | None = None
    part: Part = field(default_factory=lambda: Part("source", "test"))
    sign: float = 1.0

    def rollout(self, panel, queries, *, batch_size=16_384, reporter=None):
        own = self.dataset.panels[self.part]
        row = np.searchsorted(own.subject_id, panel.subject_id[queries.subject])
        values = TUMOR_SCHEMA.treatments.decode(queries.plan)
        y_QH = tumor_truth(self.dataset, self.part, row, queries.origin.astype(int), values)
        return (self.sign * y_QH[None, ..., None]).astype(np.float64)


def of_source(dataset, sign):
    model = Knowing(TUMOR_SCHEMA, coefficients=(0.0,), dataset=dataset, sign=sign)
    alone = Dataset(
        dataset.name, dataset.schema, dataset.horizon, {model.part: dataset.panels[model.part]},
        truth={model.part: dataset.truth[model.part]}, config=dataset.config,
    )  # fmt: skip
    return {one.policy: one for one in regrets({"model": model}, alone, REQUEST, subjects=6)}


def test_the_truth_itself_loses_nothing_and_its_opposite_the_most(tumor_dataset):
    found = of_source(tumor_dataset, 1.0)
    assert (found["model"].mean, found["model"].best) == (pytest.approx(0, abs=1e-9), 1)
    assert found["random"].relative == pytest.approx(1)
    assert 0 <= found["best single plan"].mean <= min(found["never"].mean, found["always"].mean)
    assert found["best single plan"].mean >= found["model"].mean
    assert found["random"].plans == 4**3
    worst = of_source(tumor_dataset, -1.0)["model"]
    assert worst.mean > found["random"].mean


def test_a_treatment_that_the_simulator_has_no_truth_of_is_left_out_with_a_note():
    data, part = m5_worlds.dataset(), m5_worlds.TARGET_TEST
    alone = replace(data, panels={part: data.panels[part]}, queries={}, truth={part: data.truth[part]})
    request, model = (
        SearchRequest(maximise=("sales at end",), cost=("price_change 1",), steps=2),
        LinearModel(data.schema),
    )
    reporter = NullReporter()
    found = {one.policy: one for one in regrets({"m": model}, alone, request, subjects=2, reporter=reporter)}
    expected = "regret: plans with price_change=unused are left out, as the simulator has no truth of them"
    assert said(reporter.diagnostics, "regret-without-truth") == expected
    assert {one.plans for one in found.values()} == {21**2}
    assert found["random"].relative == pytest.approx(1)


def test_without_a_simulator_nothing_is_known():
    with pytest.raises(UsageError, match="no simulator's truth"):
        regrets({"model": LinearModel(TUMOR_SCHEMA)}, make_dataset(), REQUEST)


def test_the_last_treatment_goes_on_at_the_nearest_amount_with_the_usual_gap():
    values_KA = np.array([[drug, mg, 7.0] for drug in (0, 1) for mg in (0.0, 5.0, 10.0)])
    assert _nearest(np.array([1, 6.2, 3.0]), values_KA, 1) == 4
    assert _nearest(np.array([0, 99.0, 30.0]), values_KA, 1) == 2
    assert _nearest(np.array([2, 5.0, 7.0]), values_KA, 1) is None


def test_policies_that_say_something_of_fewer_subjects_are_named():
    def row(part, policy, subjects):
        return Regret(part, policy, subjects, 16, 2, 1.0, 0.1, 1.0, 0.5)

    found = [row("source/test", "random", 10), row("source/test", "last treatment", 4), row("target/test", "random", 9)]
    assert list(_sizes(found)) == [
        "10 subjects of source/test (`last treatment` of 4 of them)", "9 subjects of target/test",
    ]  # fmt: skip
