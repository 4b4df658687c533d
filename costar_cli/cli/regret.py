"""What `costar evaluate --search` adds: how much the models' best plans lose against the simulator's own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.cli.session import Session
from costar_cli.config.requests import ObjectiveWords
from costar_cli.errors import UsageError

if TYPE_CHECKING:
    from costar_cli.data import Dataset, PanelSchema
    from costar_cli.methods.base import FittedModel
    from costar_cli.questions.search import SearchRequest
    from costar_cli.questions.search.regret import Regret


@dataclass(frozen=True)
class RegretQuestion(ObjectiveWords):
    """The objective of `evaluate --search`; without any, the first outcome at the end is minimised."""

    def check(self, *, asked: bool) -> None:
        """See that an objective is given for a search.

        Raises:
            UsageError: it is not.
        """
        named = {"--minimise": self.minimise, "--maximise": self.maximise, "--cost": self.cost}
        if flags := [flag for flag, texts in named.items() if texts and not asked]:
            raise UsageError(f"{' and '.join(flags)} without --search", where=flags[0], fix="add --search")

    def request(self, schema: "PanelSchema") -> "SearchRequest":
        """Return what models are asked."""
        from costar_cli.questions.search.regret import regret_request

        return regret_request(schema, minimise=self.minimise, maximise=self.maximise, cost=self.cost)


def check_regrets(question: RegretQuestion, dataset: "Dataset") -> None:
    """See, before any work, that a simulator knows the truth, and that the objective fits the data.

    Raises:
        UsageError: either is not so.
    """
    from costar_cli.plans.untrusted import Problems
    from costar_cli.questions.search import Objective
    from costar_cli.questions.search.regret import known_truth

    known_truth(dataset)
    problems, asked = Problems(), question.request(dataset.schema)
    Objective.parse(
        dataset.schema, dataset.horizon, problems, minimise=asked.minimise, maximise=asked.maximise, cost=asked.cost
    )
    problems.raise_any("the search does not fit", where="costar evaluate --search", fix=problems.fix)


def make_regrets(
    session: Session,
    question: RegretQuestion,
    dataset: "Dataset",
    models: "Mapping[str, FittedModel]",
    csv: Path,
    seed: int,
) -> list[dict[str, object]]:
    """Score the models' plans, show the table, write it, and return its rows."""
    from costar_cli.files.tables import table_file
    from costar_cli.questions.search.regret import regrets

    request = question.request(dataset.schema)
    found = regrets(models, dataset, request, seed=seed, reporter=session.reporter)
    rows = [regret.to_json() for regret in found]
    headers = ["test", "policy", "regret", "relative", "finds a best", "interval covers"]
    shown: list[list[object]] = []
    for one in found:
        shares = (None if of is None else f"{100 * of:.0f} %" for of in (one.relative, one.best, one.covered))
        shown.append([one.part, one.policy, f"{one.mean:.3g} ± {one.error:.2g}", *shares])
    said = ", ".join([*request.minimise, *(f"larger {text}" for text in request.maximise), *request.cost])
    session.out.table(headers, shown, title=f"regret of the best plans ({said})", keys=2)
    if found:
        sizes = ", ".join(_sizes(found))
        truth = f"{found[0].plans:,} plans of {found[0].steps} steps each, all of them simulated"
        session.out.note(f"regret: {sizes}, {truth}; relative to a plan drawn at random")
        with table_file(csv) as table:
            table.write({name: [row[name] for row in rows] for name in rows[0]})
        session.out.wrote("search", csv)
    return rows


def _sizes(found: "Sequence[Regret]") -> Iterator[str]:
    """Yield how many subjects there are of each part, and which policies say something of fewer."""
    for part in dict.fromkeys(one.part for one in found):
        mine = [one for one in found if one.part == part]
        most = max(one.subjects for one in mine)
        fewer = [f"`{one.policy}` of {one.subjects} of them" for one in mine if one.subjects < most]
        yield f"{most} subjects of {part}" + f" ({', '.join(fewer)})" * bool(fewer)
