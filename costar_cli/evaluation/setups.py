"""The three set-ups of the paper, and which of them a trained model can be scored in (spec PANEL-12)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costar_cli.config.choices import SetupName
from costar_cli.data import Dataset, Domain, Part
from costar_cli.errors import MismatchError, UsageError
from costar_cli.evaluation.foreign import ForeignModel
from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS


def with_target_sign(label: str, unlabelled_target_subjects: int) -> str:
    """Return a label, marked where target histories were learned from without labels (spec COSTAR-31)."""
    return f"{label} (uses unlabelled target)" if unlabelled_target_subjects else label


@dataclass(frozen=True, slots=True)
class Setup:
    """A set-up: where the model was trained last, and where it is tested."""

    name: SetupName
    trained: Domain
    test: Part

    @property
    def parts(self) -> set[str]:
        """Return the names of the parts that it takes: few-shot starts from a model of the source."""
        domains: set[Domain] = {"source", self.trained}
        return {f"{domain}/{split}" for domain in domains for split in ("train", "val")} | {str(self.test)}


SETUPS: Mapping[SetupName, Setup] = {
    setup.name: setup
    for setup in (
        Setup("zero-shot", "source", Part("target", "test")),
        Setup("few-shot", "target", Part("target", "test")),
        Setup("supervised", "source", Part("source", "test")),
    )
}


@dataclass(frozen=True)
class Candidate:
    """A trained model to evaluate, by a name of its own where its method does not tell it from others."""

    model: FittedModel
    name: str | None = None

    @property
    def label(self) -> str:
        """Return what tables call the model: its name, or its method, marked when it was not pretrained.

        A model whose encoder learned from histories of the target says so, whatever its name.
        """
        method = METHODS.label(self.model.method)
        called = self.name or (f"{method} (scratch)" if self.init == "scratch" else method)
        return with_target_sign(called, self.unlabelled_target_subjects)

    @property
    def unlabelled_target_subjects(self) -> int:
        """Return from how many target subjects' histories its encoder learned without labels."""
        return self.model.record.unlabelled_target_subjects or 0

    @property
    def domain(self) -> Domain:
        """Return the domain on which the model was trained last."""
        return self.model.record.domain or "source"

    def answers(self, part: Part) -> bool:
        """Return whether the model answers the queries of a test part: of predictions, those that they are for."""
        return not isinstance(self.model, ForeignModel) or part in self.model.answered

    @property
    def init(self) -> str:
        """Return where the weights started: `pretrained` or `scratch`."""
        return self.model.record.init or "scratch"

    @property
    def labelled_target_subjects(self) -> int:
        """Return how many labelled target subjects the model touched, to select and to calibrate it included."""
        record = self.model.record
        touched = (self.model.trained_on, record.selected_on or {}, record.calibrated_on or {})
        return sum(count for on in touched for part, count in on.items() if part.startswith("target/"))


def named_candidates(models: Mapping[str, FittedModel]) -> list[Candidate]:
    """Return models to evaluate, called by their names where method, start and domain do not tell them apart."""
    kinds = {(model.method, model.record.init, model.record.domain) for model in models.values()}
    alike = len(kinds) < len(models)
    return [Candidate(model, name=name if alike else None) for name, model in models.items()]


@dataclass(frozen=True, slots=True)
class Job:
    """One candidate in one set-up: a row of the table."""

    setup: Setup
    candidate: Candidate


def plan_jobs(dataset: Dataset, candidates: Sequence[Candidate], setups: Sequence[SetupName] | None) -> list[Job]:
    """Return the rows to score, by set-up: all that apply, or those of the set-ups asked for.

    Raises:
        UsageError: no candidates, an unknown set-up, or two candidates that one set-up could not tell apart.
        MismatchError: a set-up that was asked for has no model or no test queries, or nothing applies.
    """
    if not candidates:
        raise UsageError("no model to evaluate", fix="run `costar finetune` first, or pass --model")
    unknown = [name for name in setups or () if name not in SETUPS]
    if unknown:
        raise UsageError(f"unknown set-up {unknown[0]!r}", where="--setup", fix=f"choose from {', '.join(SETUPS)}")
    wanted = [setup for name, setup in SETUPS.items() if setups is None or name in setups]
    jobs: list[Job] = []
    missing: dict[str, str] = {}  # what is wrong, and its fix
    for setup in wanted:
        trained = [candidate for candidate in candidates if candidate.domain == setup.trained]
        fitting = [candidate for candidate in trained if candidate.answers(setup.test)]
        cannot, panel = f"{setup.name} cannot be scored", dataset.panels.get(setup.test)
        if not any(queries.scored is not None for queries in dataset.queries.get(setup.test, {}).values()):
            longest = None if panel is None else int(panel.length.max()) - 1
            if longest is None:
                problem = f"{cannot}: the data set has no {setup.test} subjects"
                missing[problem] = "make a data set that has them"
            elif longest < dataset.horizon:
                steps = f"{dataset.horizon + 1} steps that a question of {dataset.horizon} needs"
                problem = f"{cannot}: no {setup.test} subject has the {steps}, the longest series has {longest + 1}"
                missing[problem] = f"make the data set, and the models, with a horizon of at most {longest}"
            else:
                problem = f"{cannot}: the data set has no {setup.test} queries with answers"
                missing[problem] = "make a data set whose test queries have answers"
            continue
        if not fitting:
            if trained:
                missing[f"{cannot}: no predictions are for {setup.test}"] = f"answer the queries of {setup.test}"
                continue
            problem = f"{cannot}: no model was trained on the {setup.trained} domain"
            missing[problem] = f"`costar finetune --domain {setup.trained}`"
            continue
        labels = [candidate.label for candidate in fitting]
        if twice := sorted({label for label in labels if labels.count(label) > 1}):
            raise UsageError(f"two models are called {twice[0]!r} in {setup.name}", fix="give them different names")
        jobs += [Job(setup, candidate) for candidate in fitting]
    if missing and (setups is not None or not jobs):
        first, *more = missing
        where = "--setup" if setups is not None else None
        raise MismatchError(first, where=where, fix="; ".join(dict.fromkeys(missing.values())), details=more)
    return jobs
