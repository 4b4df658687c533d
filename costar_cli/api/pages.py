"""Reports as pages in the Python API: what `--report` of `costar whatif`, `effect`, `search` and `inspect` writes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from costar_cli.api.calls import PathLikeText
from costar_cli.api.model import Model
from costar_cli.api.outputs import check_outputs, check_page, named
from costar_cli.data import Dataset
from costar_cli.effects import EffectReport
from costar_cli.errors import CostarError, MismatchError, UsageError
from costar_cli.files import read_header, write_bytes
from costar_cli.questions import WhatIfReport
from costar_cli.questions.search import SearchReport

if TYPE_CHECKING:
    from costar_cli.evaluation import EvaluationReport

WHERE: Final = "path="


def write_report(
    what: WhatIfReport | SearchReport | EffectReport | Dataset | Model,
    path: PathLikeText,
    *,
    dataset: Dataset | None = None,
    evaluations: "Sequence[EvaluationReport]" = (),
    overwrite: bool = False,
) -> None:
    """Write one self-contained HTML page about an answer, a search, a data set or a model; a model's is its card.

    Args:
        what: what `estimate_outcomes`, `search_plans` or `estimate_effects` returned, a data set, or a model.
        path: the page's file.
        dataset: of a model, the data set that it was trained on, for the card's section on data.
        evaluations: of a model, reports of `evaluate_models` in which it was scored.
        overwrite: replace a file that exists, but never an artifact or a table that was read.

    Raises:
        UsageError: there is no page about such a thing, a search of many subjects, or arguments that are a model's.
        MismatchError: the file exists and `overwrite` is false, or it is an artifact or a table that was read; or the
            model was trained on another data set, or is not scored in an evaluation.
        StorageError: the file cannot be written, or is no regular file.
    """
    target, held = Path(path), _held(what) | ({} if dataset is None else _held(dataset))
    check_outputs([(WHERE, target)], read=(), overwrite=overwrite, held=held, permit="`overwrite=True`")
    if target.is_file():
        try:
            read_header(target)
        except CostarError:
            pass
        else:
            raise MismatchError(f"`{target}` is an artifact, and no page", where=WHERE, fix="choose another name")
    check_page(target, flag=WHERE)
    write_bytes(target, html_of(what, dataset=dataset, evaluations=evaluations).encode())


def _held(what: object) -> dict[str, str]:
    """Return what a page comes from, by digest, in words such as `table behind the data set`."""
    if isinstance(what, Dataset):
        return {digest: f"{name} behind the data set" for digest, name in named(what.parents).items()}
    if isinstance(what, WhatIfReport | SearchReport):
        return {digest: f"{name} behind the data set" for digest, name in named(what.sources).items()}
    return {}


# A function, not a method `to_html` of reports: these are made below the pages and may not import them. `inspect` does
# not call it: it prints the numbers beside the page, and makes cards of models that cannot be loaded.
def html_of(
    what: object,
    *,
    dataset: Dataset | None = None,
    evaluations: "Sequence[EvaluationReport]" = (),
) -> str:
    """Return the page that `write_report` writes."""
    if isinstance(what, Model):
        return _card(what, dataset, evaluations)
    if dataset is not None or evaluations:
        where = "dataset=" if dataset is not None else "evaluations="
        raise UsageError("only a model's card has more to show", where=where, fix="leave it out")
    if isinstance(what, WhatIfReport):
        from costar_cli.report.pages.whatif import whatif_page

        return whatif_page(what, what.parents)
    if isinstance(what, EffectReport):
        from costar_cli.report.pages.effects import effects_page

        return effects_page(what, what.parents)
    if isinstance(what, SearchReport):
        from costar_cli.report.pages.search import search_page

        if len(what.answers) != 1:
            problem = f"the page is of one subject, and this search is of {len(what.answers):,}"
            raise UsageError(problem, where="what=", fix="search the plans of one of them")
        return search_page(what, what.parents)
    if isinstance(what, Dataset):
        from costar_cli.data.report import describe_dataset
        from costar_cli.inference.overlap import describe_overlap
        from costar_cli.report.pages import report_page

        return report_page(describe_dataset(what), describe_overlap(what))
    fix = "give what `estimate_outcomes`, `search_plans` or `estimate_effects` returned, a data set or a model"
    raise UsageError(f"there is no page about {type(what).__name__}", where="what=", fix=fix)


def _card(model: Model, dataset: Dataset | None, evaluations: "Sequence[EvaluationReport]") -> str:
    """Return the page of a model.

    Raises:
        UsageError: there is no list of evaluations.
        MismatchError: another data set than the model's, or an evaluation of other models.
    """
    from costar_cli.data.report import describe_dataset
    from costar_cli.data.store import with_digest
    from costar_cli.evaluation import EvaluationReport
    from costar_cli.report.pages.card import is_scored, model_card

    artifact = model.artifact
    if dataset is not None and with_digest(dataset).digest != artifact.parents.get("dataset"):
        fix = "give the data set that it was fitted to"
        raise MismatchError("the model was trained on another data set", where="dataset=", fix=fix)
    content: Mapping[str, object] = {
        "digest": artifact.digest, "meta": artifact.meta, "parents": artifact.parents, "versions": artifact.versions,
    }  # fmt: skip
    if not isinstance(evaluations, Sequence) or not all(isinstance(one, EvaluationReport) for one in evaluations):
        fix = "give what `evaluate_models` returned in a list"
        raise UsageError("this is not a list of evaluations", where="evaluations=", fix=fix)
    for i, report in enumerate(evaluations, start=1):
        if not is_scored(report, model.digest):
            fix = "leave it out, or score the model in it"
            raise MismatchError(f"the model is not scored in evaluation number {i}", where="evaluations=", fix=fix)
    scored = {f"not saved, number {i}": report for i, report in enumerate(evaluations, start=1)}
    return model_card(content, None if dataset is None else describe_dataset(dataset), scored)
