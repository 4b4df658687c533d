"""What training subjects were given: combinations, and treatments that never stop."""

import json
from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Panel, PanelSchema, TreatmentEncoding, Variable
from costar_cli.data.record import ModelRecord
from costar_cli.data.support import MOST_KEPT, Support, UnseenTreatment, never_together
from costar_cli.errors import ArtifactError
from costar_cli.files import Artifact

BINARY = PanelSchema(
    treatments=TreatmentEncoding(mode="multilabel", names=("fluid", "tube"), levels=(("no", "yes"),) * 2),
    outcomes=(Variable(name="y"),),
)
CLASSES = PanelSchema(
    treatments=TreatmentEncoding(
        mode="multiclass", names=("dose",), levels=(("0", "2", "4"),), classes=((0,), (1,), (2,))
    ),
    outcomes=(Variable(name="y"),),
)
N_SUBJECTS, N_STEPS = 6, 12


def panel_of(values: np.ndarray, schema: PanelSchema) -> Panel:
    """A panel whose subjects are given `values [N,T,names]`."""
    n, t = values.shape[:2]
    encoded = schema.treatments.encode(values)
    return Panel(
        np.zeros((n, t, 0), np.float32), encoded, np.zeros((n, t, 1), np.float32), np.zeros((n, 0), np.float32),
        np.full(n, t), np.arange(n),
    )  # fmt: skip


def absorbing_panel() -> Panel:
    """Fluid comes and goes; the tube, once in at a step of its own for each subject, stays."""
    values = np.zeros((N_SUBJECTS, N_STEPS, 2), dtype=int)
    values[:, ::3, 0] = 1
    for subject in range(N_SUBJECTS):
        values[subject, 2 + subject :, 1] = 1
    return panel_of(values, BINARY)


def test_a_treatment_that_never_stops_is_recognised():
    support = Support.of(absorbing_panel(), BINARY)
    assert support.absorbing(BINARY.treatments) == ["tube"]
    stopped = np.asarray(BINARY.treatments.decode(absorbing_panel().treatments))
    stopped[0, 9, 1] = 0  # somebody stops it, once
    assert Support.of(panel_of(stopped, BINARY), BINARY).absorbing(BINARY.treatments) == []


def test_what_is_given_at_the_last_step_stops_nothing_and_the_next_subject_starts_anew():
    panel = absorbing_panel()
    last = panel.treatments.copy()
    last[:, -1] = 0  # not recorded: nothing follows
    assert Support.of(replace(panel, treatments=last), BINARY).absorbing(BINARY.treatments) == ["tube"]


def test_a_treatment_that_is_always_given_or_hardly_ever_is_not_called_absorbing():
    always = np.ones((N_SUBJECTS, N_STEPS, 2), dtype=int)
    assert Support.of(panel_of(always, BINARY), BINARY).absorbing(BINARY.treatments) == []
    few = np.zeros((N_SUBJECTS, N_STEPS, 2), dtype=int)
    few[0, 5:, 1] = 1
    assert Support.of(panel_of(few, BINARY), BINARY).absorbing(BINARY.treatments) == []


def test_classes_and_combinations_that_nobody_was_given_are_named():
    doses = np.random.default_rng(0).integers(0, 2, (N_SUBJECTS, N_STEPS, 1))
    doses[:, -1] = 2  # its outcome is unknown: nothing is learned of it
    assert Support.of(panel_of(doses, CLASSES), CLASSES).unseen(CLASSES.treatments) == [
        UnseenTreatment("dose=4", "never")
    ]
    either = np.zeros((N_SUBJECTS, N_STEPS, 2), dtype=int)
    either[:3, :, 0], either[3:, 1:, 1] = 1, 1
    both = UnseenTreatment("fluid+tube", "apart")
    assert Support.of(panel_of(either, BINARY), BINARY).unseen(BINARY.treatments) == [both]
    plan = np.array([[1, 1], [0, 1], [1, 1]])
    assert Support.of(panel_of(either, BINARY), BINARY).unseen_in(plan, BINARY.treatments) == [both]


def test_a_combination_is_only_called_so_where_each_of_its_treatments_was_given():
    fluid = np.zeros((N_SUBJECTS, N_STEPS, 2), dtype=int)
    fluid[:, ::2, 0] = 1
    lacks = Support.of(panel_of(fluid, BINARY), BINARY).unseen(BINARY.treatments)
    assert lacks == [UnseenTreatment("tube", "never"), UnseenTreatment("fluid+tube", "never")]
    assert never_together(lacks, "anybody") == ""
    said = never_together([*lacks, UnseenTreatment("a+b", "apart")], "anybody")
    assert said.startswith("the combination 'a+b' was never given together to anybody")


def test_treatments_that_are_always_given_together_are_named_and_no_others():
    values = np.zeros((N_SUBJECTS, N_STEPS, 2), dtype=int)
    values[:, ::2] = 1
    support, encoding = Support.of(panel_of(values, BINARY), BINARY), BINARY.treatments
    assert support.always_together(encoding) == [("fluid", "tube")]
    assert support.unseen(encoding) == [UnseenTreatment("fluid", "part"), UnseenTreatment("tube", "part")]
    assert [lack.told for lack in support.unseen(encoding)] == ["fluid without others", "tube without others"]
    values[0, 1, 0] = 1  # fluid alone, once
    support = Support.of(panel_of(values, BINARY), BINARY)
    assert support.always_together(encoding) == []
    assert support.unseen(encoding) == [UnseenTreatment("tube", "others")]


def test_steps_of_plans_that_nobody_was_given_are_found():
    values = np.zeros((N_SUBJECTS, N_STEPS, 2), dtype=int)
    values[:, ::2] = 1
    support = Support.of(panel_of(values, BINARY), BINARY)
    plan = BINARY.treatments.encode([[[0, 0], [1, 1], [1, 0]], [[0, 1], [0, 0], [0, 0]]])
    np.testing.assert_array_equal(
        support.unseen_steps(plan, BINARY.treatments), [[False, False, True], [True, False, False]]
    )
    assert not replace(support, seen=None).unseen_steps(plan, BINARY.treatments).any()


def test_two_stages_support_what_either_does():
    low, high = (panel_of(np.full((N_SUBJECTS, N_STEPS, 1), level), CLASSES) for level in (1, 2))
    both = Support.of(low, CLASSES) | Support.of(high, CLASSES)
    assert both.unseen(CLASSES.treatments) == [UnseenTreatment("dose=0", "never")]
    assert both.continued == (2 * N_SUBJECTS * (N_STEPS - 2),)


def test_support_survives_the_meta_of_an_artifact():
    support = Support.of(absorbing_panel(), BINARY)
    assert ModelRecord.read(json.loads(json.dumps({"support": support.to_meta()}))).support == support
    assert ModelRecord.read({}).support is None


def test_of_too_many_combinations_none_is_called_unseen():
    names = tuple(f"t{i}" for i in range(14))
    schema = PanelSchema(
        treatments=TreatmentEncoding(mode="multilabel", names=names, levels=(("no", "yes"),) * 14),
        outcomes=(Variable(name="y"),),
    )
    values = np.random.default_rng(0).integers(0, 2, (100, 60, 14))
    support = Support.of(panel_of(values, schema), schema)
    assert support.seen is None
    assert len(np.unique(values.reshape(-1, 14), axis=0)) > MOST_KEPT
    assert support.unseen(schema.treatments) == []
    assert support.unseen_in(np.zeros((1, 14), dtype=int), schema.treatments) == []


@pytest.mark.parametrize(
    ("before", "plan", "found"),
    [
        ([[0, 1]], [[0, 0], [0, 0]], [("tube", 0)]),
        ([[0, 0]], [[0, 1], [0, 0]], [("tube", 1)]),
        ([], [[0, 1], [1, 1], [1, 0]], [("tube", 2)]),
        ([[1, 1]], [[0, 1], [0, 1]], []),
        ([[0, 0]], [[0, 0]], []),
    ],
)
def test_a_plan_that_stops_what_never_stops_is_found_with_its_step(before, plan, found):
    support = Support.of(absorbing_panel(), BINARY)
    given = np.array(before, dtype=int).reshape(-1, 2)
    assert list(support.stops(given, np.array(plan), BINARY.treatments)) == found


@pytest.mark.parametrize("odd", [{}, "x", {"untreated": [None]}, {"seen": [["a"]]}])
def test_support_that_costar_does_not_write_is_an_error_of_the_file(odd):
    sound = Support.of(absorbing_panel(), BINARY).to_meta()
    assert ModelRecord.read({"support": json.loads(json.dumps(sound))}).support == Support.of(absorbing_panel(), BINARY)
    damaged = Artifact("model", {}, {"support": {**sound, **odd} if isinstance(odd, dict) and odd else odd})
    with pytest.raises(ArtifactError, match="incomplete or damaged") as caught:
        ModelRecord.of(damaged)
    assert "support" in caught.value.where
