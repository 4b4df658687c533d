"""Predictions of other programs, scored as models are: read, checked against the questions, and looked up.

A file has a row per query and step, as `costar inspect --export` writes queries: `set`, `query`, `step`, of several
outcomes also `outcome`. `estimate` is the prediction; how uncertain it is say `sd` (of a normal distribution), columns
`q0.05` to `q0.95` (quantiles), or several rows with a number in `sample`, whose mean is the estimate where there is
none. `K` are the quantiles that bands are made of.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from costar_cli.data import Dataset, Domain, Panel, Part, Queries, Scaler
from costar_cli.data.findings import counted, shown
from costar_cli.data.record import ModelRecord
from costar_cli.errors import DataError, first_of
from costar_cli.evaluation.sums import TAILS
from costar_cli.inference import Bands, Estimates, OutcomeFacts
from costar_cli.methods.base import Forecast, PredictFn
from costar_cli.methods.shared.distinct import rows_as_bytes
from costar_cli.methods.shared.trained import TrainedModel, require_horizon
from costar_cli.reporting import Reporter

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]
Lookup = tuple[NDArray[np.bytes_], Floats, NDArray[np.float32] | None]
"""The questions in order of their bytes, estimates `[Q,H,Y]`, and quantiles `[K,Q,H,Y]` where they are stated."""

MOST_ROWS: Final = 50_000_000
KEYS: Final = ("set", "query", "step")
QUANTILE: Final = r"^q(0?\.\d+)$"
FEWEST_SAMPLES: Final = 20  # of an answer, for bands


@dataclass(frozen=True, eq=False)
class StatedForecast(Forecast):
    """What a program predicts, with quantiles in the place of members: their mean is not the estimate."""

    stated_QHY: Floats = field(default_factory=lambda: np.zeros((0, 0, 0)))

    @property
    def mean_QHY(self) -> Floats:
        """Return the estimates."""
        return self.stated_QHY


@dataclass(frozen=True)
class StatedBands:
    """Bands that predictions state themselves, by their quantiles at `TAILS`; infinite beyond those that are stated."""

    floor: float = 1.0

    def bands(self, estimates: Estimates, levels: Sequence[float], *, clip: bool = True) -> Bands:
        """Return the bands of estimates whose members are quantiles."""
        del clip
        tails = np.array(TAILS)

        def at(tail: float) -> Floats:
            return np.asarray(estimates.members_RQHY[int(np.abs(tails - tail).argmin())], dtype=np.float64)

        lower, upper = (np.stack([at((1 + sign * level) / 2) for level in levels]) for sign in (-1, 1))
        known = np.isfinite(lower) & np.isfinite(upper)
        return Bands(tuple(levels), np.where(known, lower, -np.inf), np.where(known, upper, np.inf))


@dataclass(frozen=True, kw_only=True)
class ForeignModel(TrainedModel):
    """A program that is known by its predictions for the queries of a data set; other questions are errors.

    `answers` are by the length of plans, `answered` the test parts that they are about.
    """

    answers: Mapping[int, Lookup]
    answered: tuple[Part, ...]

    @property
    def stated(self) -> StatedBands | None:
        """Return what gives its bands, None where it states none."""
        return StatedBands() if any(quantiles is not None for *_, quantiles in self.answers.values()) else None

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Return the predictions `[1,Q,H,Y]` of questions that were answered.

        Raises:
            UsageError: plans are longer than those of the data set.
            DataError: a question that the file does not answer.
        """
        del batch_size, reporter
        require_horizon(self.horizon, queries)
        rows, estimates, _ = self._found(panel, queries)
        return estimates[rows][None].astype(np.float32)

    def forecast(self, panel: Panel, queries: Queries, ask: PredictFn) -> Forecast:
        """Return the predictions, with their quantiles as members."""
        del ask
        rows, estimates, quantiles = self._found(panel, queries)
        stated_QHY = estimates[rows]
        curves = stated_QHY[None].astype(np.float32) if quantiles is None else quantiles[:, rows]
        variance = np.ones_like(stated_QHY)
        return StatedForecast(curves, variance, variance, np.zeros(stated_QHY.shape[1:]), stated_QHY)

    def _found(self, panel: Panel, queries: Queries) -> tuple[NDArray[np.intp], Floats, NDArray[np.float32] | None]:
        asked, (known, estimates, quantiles) = _bytes_of(panel, queries), self.answers[queries.horizon]
        rows = np.searchsorted(known, asked).clip(max=len(known) - 1)
        if not (known[rows] == asked).all():
            raise DataError("a question is not answered by the predictions", where=self.method)
        return rows, estimates, quantiles


def _bytes_of(panel: Panel, queries: Queries) -> NDArray[np.bytes_]:
    """Return each question as bytes that sort: who, when, and the plan."""
    n = len(queries)
    who = np.stack([panel.subject_id[queries.subject], queries.origin], axis=1).astype("<i8")
    plan = (queries.plan.reshape(n, -1) + 0.0).astype("<f4")  # a negative zero is zero
    raw = rows_as_bytes(who, plan)
    return raw.view(f"S{raw.shape[1]}")[:, 0]


def read_predictions(path: Path, dataset: Dataset, *, trained: Domain, digest: str = "") -> ForeignModel:
    """Read the predictions of another program for the queries of a data set.

    Args:
        path: a table of any kind that `costar ingest table` reads.
        dataset: all parts, as queries are numbered through them.
        trained: where the program was trained last, which decides the set-up of its scores.
        digest: of the file, where it is known.

    Raises:
        DataError: a column is missing or holds no numbers, a query is unknown or answered twice or in part, or no test
            part is answered.
    """
    import polars as pl  # noqa: PLC0415 - evaluations of models need no tables

    from costar_cli.data.table.export import free_names, queries_to_frame  # noqa: PLC0415

    schema, train = dataset.schema, dataset.panel("source", "train")
    stated, tails_MK = _rows(path, [outcome.name for outcome in schema.outcomes])
    names = free_names(schema)
    asked = queries_to_frame(dataset, names).select(pl.col(names[key]).alias(key) for key in KEYS)
    rows = stated.join(asked.with_row_index("place"), on=list(KEYS), how="left", maintain_order="left")
    unknown = rows.filter(pl.col("place").is_null())
    if unknown.height:
        first = "set {!r}, query {}, step {}".format(*unknown.select(KEYS).row(0))
        raise DataError(
            f"{counted(unknown.height, 'row answers', 'rows answer')} no query of the data set, the first {first}",
            where=str(path),
            fix="answer the queries that `costar inspect DATA --export FOLDER` writes, by `set`, `query` and `step`",
        )
    size, dy = sum(len(q) * q.horizon for sets in dataset.queries.values() for q in sets.values()), len(schema.outcomes)
    cell = rows["place"].to_numpy() * dy + rows["outcome"].to_numpy()
    if len(np.unique(cell)) < len(cell):
        raise DataError("a step of a query is answered twice", where=str(path), fix="keep one row for each")
    estimate = np.full(size * dy, np.nan)
    estimate[cell] = rows["estimate"].to_numpy()
    curves = None
    if tails_MK is not None:
        curves = np.full((len(TAILS), size * dy), np.nan, dtype=np.float32)
        curves[:, cell] = tails_MK.T
    answers, answered = _by_question(dataset, estimate.reshape(size, dy), curves, path)
    scaler = Scaler.fit(train, schema)
    facts = OutcomeFacts.of(train, schema, scaler)
    record = ModelRecord(
        method=path.stem, schema=schema, horizon=dataset.horizon, members=1, domain=trained, init="none",
        outcome_facts={"facts": facts.to_meta()},
    )  # fmt: skip
    return ForeignModel(
        method=path.stem, params={"none": np.zeros((1, 0))}, schema=schema, scaler=scaler, horizon=dataset.horizon,
        record=record, parents={"dataset": dataset.digest}, answers=answers, answered=answered,
        digest=digest,
    )  # fmt: skip


def _rows(path: Path, outcomes: Sequence[str]) -> "tuple[pl.DataFrame, Floats | None]":
    """Return what a file says of each step of a query, `outcome` by place, and quantiles `[M,K]` where it has any.

    Raises:
        DataError: a column is missing or holds no numbers, or an outcome is unknown.
    """
    import polars as pl  # noqa: PLC0415 - evaluations of models need no tables

    from costar_cli.data.table.files import collected, open_files  # noqa: PLC0415

    file = open_files([path], "the predictions")[0]
    quantiles = {name: float(name[1:]) for name in file.columns if re.fullmatch(QUANTILE, name)}
    needed = [*KEYS, *(["outcome"] if len(outcomes) > 1 else []), "estimate"]
    if lacking := [name for name in needed if name not in file.columns]:
        fix = f"a row per query and step has {', '.join(needed)}; how uncertain it is say sd, q0.05 to q0.95, or sample"
        raise DataError(f"there is no column {shown(lacking)}", where=str(path), fix=fix)
    spread = ["sd"] if "sd" in file.columns else list(quantiles)
    kinds = {"set": pl.String, "query": pl.Int64, "step": pl.Int64, "outcome": pl.String}
    names = [name for name in (*KEYS, "outcome", "estimate", *spread) if name in file.columns]
    with collected(path):
        columns = [file.column(name).cast(kinds.get(name, pl.Float64), strict=False).alias(name) for name in names]
        frame = file.scan.head(MOST_ROWS + 1).select(columns).collect()
    if frame.height > MOST_ROWS:
        raise DataError(f"there are more than {MOST_ROWS:,} rows", where=str(path), fix="state quantiles, not samples")
    for name in names:
        bad = frame[name].is_null() if name in kinds else ~frame[name].is_finite().fill_null(value=False)
        if (at := bad.arg_max()) is not None and bad.any():
            raise DataError(
                f"column '{name}' has no {'value' if name in kinds else 'finite number'}",
                where=f"{path}, row {at + 2}", fix="give one in every row",
            )  # fmt: skip
    if "outcome" not in frame.columns:
        frame = frame.with_columns(outcome=pl.lit(0))
    elif unknown := set(frame["outcome"].unique()) - set(outcomes):
        raise DataError(f"no outcome is called {shown(sorted(unknown))}", where=str(path), fix=shown(list(outcomes)))
    else:
        frame = frame.with_columns(pl.col("outcome").replace_strict({name: i for i, name in enumerate(outcomes)}))
    tails_MK: Floats | None = None
    if "sample" in file.columns:
        quantile = [pl.col("estimate").quantile(tail, "midpoint").alias(f"tail {tail}") for tail in TAILS]
        key = [*KEYS, "outcome"]
        frame = frame.group_by(key, maintain_order=True).agg(pl.col("estimate").mean(), *quantile, count=pl.len())
        few_M1 = (frame["count"].to_numpy() < FEWEST_SAMPLES)[:, None]
        tails_MK = np.where(few_M1, np.nan, frame.select(f"tail {tail}" for tail in TAILS).to_numpy())
    elif spread == ["sd"]:
        if (frame["sd"] < 0).any():
            raise DataError("an sd is negative", where=str(path), fix="give standard deviations, of the outcome's unit")
        mean_M1, sd_M1 = (frame[name].to_numpy()[:, None] for name in ("estimate", "sd"))
        tails_MK = mean_M1 + sd_M1 * ndtri(np.array(TAILS))
    elif len(spread) > 1:
        from scipy.interpolate import interp1d  # noqa: PLC0415 - slow to import, needed here alone

        order = sorted(quantiles, key=quantiles.__getitem__)
        stated_MQ, levels = frame.select(order).to_numpy(), [quantiles[name] for name in order]
        if (np.diff(stated_MQ, axis=1) < 0).any():
            raise DataError("quantiles of a row are not in order", where=str(path), fix="a higher one is no smaller")
        between = interp1d(levels, stated_MQ, axis=1, bounds_error=False)  # not a number beyond those that are stated
        tails_MK = np.asarray(between(TAILS), dtype=np.float64)
    return frame, tails_MK


def _by_question(
    dataset: Dataset, estimate: Floats, curves: NDArray[np.float32] | None, path: Path
) -> tuple[dict[int, Lookup], tuple[Part, ...]]:
    """Return the answers by the length of their plans, and the test parts that have them.

    Raises:
        DataError: a part is answered in part, or none is.
    """
    found: dict[int, list[Lookup]] = {}
    problems, answered, first = list[str](), list[Part](), 0
    for part, sets in dataset.queries.items():
        panel, missing, there = dataset.panels[part], list[str](), False
        for name, queries in sets.items():
            shape = (len(queries), queries.horizon, estimate.shape[1])
            rows = slice(first, first := first + shape[0] * shape[1])
            known_QHY = estimate[rows].reshape(shape)
            absent_QHY = np.isnan(known_QHY)
            there |= not absent_QHY.all()
            asked_QH = np.zeros(shape[:2], dtype=bool) if queries.scored is None else queries.scored
            if lacking := int((absent_QHY.any(axis=2) & asked_QH).any(axis=1).sum()):
                missing.append(f"{part}: {lacking:,} of {len(queries):,} queries of set {name} have no answer")
            level_QY = panel.outcomes[queries.subject, queries.origin]
            known_QHY = np.where(absent_QHY, level_QY[:, None], known_QHY)  # steps that no score is of
            own = None if curves is None else curves[:, slice(rows.start * shape[2], rows.stop * shape[2])]
            own = None if own is None else own.reshape(len(TAILS), *shape)
            found.setdefault(queries.horizon, []).append((_bytes_of(panel, queries), known_QHY, own))
        if there and not missing and any(queries.scored is not None for queries in sets.values()):
            answered.append(part)
        problems += missing if there else []
    if problems or not answered:
        problem = problems[0] if problems else "no query of a test split is answered"
        fix = "answer every query of a split, or leave the split out"
        raise DataError(problem, where=str(path), fix=fix, details=first_of(problems[1:]))
    answers = {}
    for steps, several in found.items():
        keys, known, of_tails = zip(*several, strict=True)
        key_Q = np.concatenate(keys)
        order = np.argsort(key_Q, kind="stable")
        tails = None if curves is None else np.concatenate(of_tails, axis=1)[:, order]
        answers[steps] = (key_Q[order], np.concatenate(known)[order], tails)
    return answers, tuple(answered)
