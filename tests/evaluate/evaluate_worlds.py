"""Small worlds for the evaluation tests: a cohort with known answers, and models whose errors are known."""

from dataclasses import dataclass, field, replace

import numpy as np

from costar_cli.data import (
    Dataset,
    ErrorUnit,
    Panel,
    PanelSchema,
    Part,
    Queries,
    Scaler,
    TreatmentEncoding,
    Variable,
)
from costar_cli.data.record import ModelRecord
from costar_cli.data.registry import protocol_of
from costar_cli.evaluation import Candidate
from costar_cli.methods.base import FittedModel

HORIZON = 6
CLASSES = ((0, 0), (1, 0), (0, 1), (1, 1))


def schema(outcomes=1, **unit):
    return PanelSchema(
        outcomes=tuple(Variable(name=f"outcome_{y + 1}", unit="cm3") for y in range(outcomes)),
        statics=(Variable(name="patient_type", kind="ordinal"),),
        treatments=TreatmentEncoding(
            mode="multiclass",
            names=("chemotherapy", "radiotherapy"),
            levels=(("off", "on"), ("off", "on")),
            classes=CLASSES,
        ),
        step="day",
        error_unit=ErrorUnit(**({"factor": 1.0, "label": "cm3"} | unit)),
    )


def panel(subjects, steps=20, outcomes=1, seed=0, first_id=0):
    rng = np.random.default_rng(seed)
    length = rng.integers(steps // 2, steps + 1, size=subjects)
    inside = np.arange(steps) < length[:, None]
    treatments = np.eye(4, dtype=np.float32)[rng.integers(4, size=(subjects, steps))]
    return Panel(
        covariates=np.zeros((subjects, steps, 0), np.float32),
        treatments=treatments * inside[..., None],
        outcomes=(rng.normal(10, 3, size=(subjects, steps, outcomes)) * inside[..., None]).astype(np.float32),
        statics=np.zeros((subjects, 1), np.float32),
        length=length.astype(np.int64),
        subject_id=np.arange(first_id, first_id + subjects, dtype=np.int64),
    )


def counterfactual_queries(on, horizon, per_subject, seed=1, first_scored=0):
    """Random plans with random answers; the first `first_scored` steps are not scored."""
    rng = np.random.default_rng(seed)
    subject = np.repeat(np.arange(on.n_subjects), per_subject)
    origin = rng.integers(0, np.maximum(on.length[subject] - 1, 1))
    shape = (len(subject), horizon)
    scored = np.broadcast_to(np.arange(horizon) >= first_scored, shape).copy()
    return Queries(
        subject=subject.astype(np.int32),
        origin=origin.astype(np.int16),
        plan=np.eye(4, dtype=np.uint8)[rng.integers(4, size=shape)],
        outcomes=rng.normal(10, 3, size=(*shape, on.outcomes.shape[-1])).astype(np.float32),
        scored=scored,
    )


def factual_queries(on, horizon):
    """Every origin that has `horizon` further observed steps, with the treatments and outcomes that followed."""
    pairs = [(n, t) for n, length in enumerate(on.length) for t in range(length - horizon)]
    subject, origin = np.array(pairs).T
    steps = origin[:, None] + np.arange(horizon)
    return Queries(
        subject=subject.astype(np.int32),
        origin=origin.astype(np.int16),
        plan=on.treatments[subject[:, None], steps].astype(np.uint8),
        outcomes=on.outcomes[subject[:, None], steps + 1],
        scored=np.ones(steps.shape, dtype=bool),
    )


def answered_sets(on, seed=1):
    return {
        "one_step": counterfactual_queries(on, 1, 12, seed),
        "sequence": counterfactual_queries(on, HORIZON, 8, seed + 1, first_scored=1),
    }


def dataset(subjects=12, outcomes=1, digest="d" * 64, name="tumor", **unit):
    panels, queries, first = {}, {}, 0
    for i, part in enumerate(Part.all()):
        panels[part] = panel(subjects, outcomes=outcomes, seed=i, first_id=first)
        first += subjects
        if part.split == "test":
            queries[part] = answered_sets(panels[part], seed=10 * i + 1)
    protocol = protocol_of(name)
    config = dict(protocol.settings) if protocol else {}  # small, but to be shown beside the published rows
    return Dataset(name, schema(outcomes, **unit), HORIZON, panels, queries, config=config, digest=digest)


@dataclass
class FakeModel(FittedModel):
    """Predicts what `answers` knows about (subject id, origin, plan), plus an error per member."""

    answers: dict
    schema: PanelSchema
    scaler: Scaler
    error: object = 0.0  # float, or a function (member, queries) -> [Q,tau,dy]
    members: int = 1
    method: str = "costar"
    horizon: int = HORIZON
    meta: dict = field(default_factory=dict)
    parents: dict = field(default_factory=dict)
    digest: str = ""
    attached: dict = field(default_factory=dict)

    @property
    def record(self):
        return ModelRecord.read(self.meta)

    def rollout(self, panel, queries, *, batch_size=16_384, reporter=None):
        assert queries.outcomes is None, "models must not see the answers"
        nothing = np.zeros((queries.horizon, len(self.schema.outcomes)))  # to factual questions that no test set has
        truth = np.stack(
            [
                self.answers.get(key(panel.subject_id[n], t, plan), nothing)
                for n, t, plan in zip(queries.subject, queries.origin, queries.plan, strict=True)
            ]
        )
        prediction = np.stack([truth + self._error(r, panel, queries, truth) for r in range(self.members)])
        return prediction.astype(np.float32)

    def _error(self, member, panel, queries, truth):
        return self.error(member, panel, queries, truth) if callable(self.error) else self.error


def key(subject_id, origin, plan):
    return int(subject_id), int(origin), plan.tobytes()


def answers(data):
    """Return the truth of every query; repeated queries get the same answer in the data set, too."""
    known = {}
    for part, sets in data.queries.items():
        ids = data.panels[part].subject_id
        for queries in sets.values():
            for q, (n, t, plan) in enumerate(zip(queries.subject, queries.origin, queries.plan, strict=True)):
                queries.outcomes[q] = known.setdefault(key(ids[n], t, plan), queries.outcomes[q].copy())
    return known


def oracle(data, **fields):
    scaler = Scaler.fit(data.panel("source", "train"), data.schema)
    return FakeModel(answers(data), data.schema, scaler, **fields)


def independent_noise(sd, seed=0):
    """Return an error function with a stream per member and query, whatever the batches."""

    def error(member, panel, queries, truth):
        return np.stack(
            [
                np.random.default_rng(
                    [seed, member, int(panel.subject_id[n]), int(t), *plan.argmax(-1).tolist()]
                ).normal(0, sd, size=truth.shape[1:])
                for n, t, plan in zip(queries.subject, queries.origin, queries.plan, strict=True)
            ]
        )

    return error


def candidate(model, domain="source", *, digest="d" * 64, init="pretrained", trained_on=None, name=None):
    trained_on = trained_on or (
        {"source/train": 10, "source/val": 10} | ({"target/train": 3} if domain == "target" else {})
    )
    meta = {"method": model.method, "init": init, "domain": domain, "trained_on": trained_on}
    facts = {"meta": meta} if hasattr(model, "meta") else {"record": ModelRecord.read(meta)}  # of fakes, or of models
    return Candidate(replace(model, **facts, parents={"dataset": digest}, digest="m" * 64), name=name)


def without(queries, **changes):
    return replace(queries, **changes)
