"""Who is asked about, and from when: the subjects of a cohort, and their origins.

`M` counts moments: a subject at an origin. A subject has several where all origins are asked about.
"""

import csv
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.config.toml import RefusedError, read_bounded
from costar_cli.data import Dataset, Location, Panel, Part
from costar_cli.data.findings import counted
from costar_cli.data.panel import join_panels
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import StorageError, UsageError
from costar_cli.plans import IndexTimes, Origin, PlanRequest
from costar_cli.plans.untrusted import shown
from costar_cli.reporting import NullReporter, Reporter

MOST_NAMED: Final = 20  # of unknown subjects, or of those that are too short
MOST_BYTES: Final = 64_000_000  # of a file of subjects: some millions of them
LISTED: Final = "give a text file with a subject per line, or a CSV file with a column `subject`"
_JSON: Final = re.compile(r'\s*(\{\s*["}]|\[\s*[\["{\]\d])')  # how an object, a list, or lines of them begin


@dataclass(frozen=True, eq=False, slots=True)
class Cohort:
    """Subjects, and the moments at which they are asked about.

    Attributes:
        panel: the subjects, each once.
        names: what the caller calls each.
        places: where each is in a data set; empty for subjects of none.
        subject_M: rows of the panel.
        origin_M: the last known step at each moment.
    """

    panel: Panel
    names: Sequence[object]
    places: Sequence[Location]
    subject_M: NDArray[np.int64]
    origin_M: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.subject_M)

    @classmethod
    def of(
        cls,
        panel: Panel,
        names: Sequence[object],
        places: Sequence[Location] = (),
        *,
        origin: Origin = "last",
        skip: bool = False,
        where: str = "--origin",
        terminal: Collection[int] = (),
        reporter: Reporter | None = None,
    ) -> Self:
        """Return a cohort of all subjects of a panel that have the origin, and whose series has not ended there.

        Args:
            panel: the subjects.
            names: what each is called.
            places: where each is in a data set.
            origin: a step from 0, or back from the last one if negative; a date; `last`, or `all` steps.
            skip: leave out subjects that are too short for the origin, with a warning.
            where: what error messages call the place where the origin was given.
            terminal: the ends of series after which nothing follows, of the schema.
            reporter: told of them, and of those whose series has ended.

        Raises:
            UsageError: subjects without the origin, named; no subject left; a date where there are none.
        """
        moments = IndexTimes.of(panel, origin, where=where)
        outside_N = moments.outside_Q
        if outside_N.any():
            short = [f"{names[i]} ({moments.series_of(i)})" for i in np.flatnonzero(outside_N).tolist()]
            problem = f"origin {origin} is outside the series of {counted(len(short), 'subject')}"
            fix = f"choose an earlier origin, or `{'' if where.endswith('=') else '--origin '}last`"
            if skip and outside_N.all():
                raise UsageError(f"no subject has the origin {origin}", where=where, fix=fix)
            _refuse_or_skip(problem, short, skip=skip, where=where, reporter=reporter, fix=fix)
        inside = moments.take(~outside_N)
        over_M = np.isin(panel.ends, list(terminal))[inside.subject_Q]
        over_M &= inside.origin_Q == panel.length[inside.subject_Q] - 1
        if over_M.any():
            who = counted(len(np.unique(inside.subject_Q[over_M])), "subject")
            if over_M.all():
                fix = f"choose an earlier origin, such as `{'' if where.endswith('=') else '--origin '}-1`"
                raise UsageError(f"the series of {who} has ended at the origin", where=where, fix=fix)
            (reporter or NullReporter()).say(Diagnostic.of("series-ended", subjects=who))
            inside = inside.take(~over_M)
        return cls(panel, names, places, inside.subject_Q.astype(np.int64), inside.origin_Q.astype(np.int64))

    def take(self, moments: slice | NDArray[np.int64]) -> Self:
        """Return the cohort of some moments, with their subjects alone."""
        subjects, row_M = np.unique(self.subject_M[moments], return_inverse=True)
        names, places = ([of[i] for i in subjects] if of else [] for of in (self.names, self.places))
        return type(self)(self.panel.take(subjects), names, places, row_M, self.origin_M[moments])

    def known(self) -> Panel:
        """Return the panel up to the last origin: all that models are shown, where shifts read what follows."""
        return self.panel.until(int(self.origin_M.max()) + 1)

    def moments(self, moment_Q: NDArray[np.integer]) -> IndexTimes:
        """Return the moments of questions, of the panel that models are shown."""
        return IndexTimes(self.known(), self.subject_M[moment_Q], self.origin_M[moment_Q])


def choose_subjects(
    dataset: Dataset,
    who: str | Iterable[int | str],
    *,
    skip: bool = False,
    where: str = "--subjects",
    reporter: Reporter | None = None,
) -> list[Location]:
    """Return where subjects are, part after part, each once.

    Args:
        dataset: whose subjects they are.
        who: `all`; a part such as `target/test`; the path of a file (`read_subjects`); or what the data call them.
        skip: leave out those that are not in the data set, with a warning.
        where: what error messages call the place where they were given.
        reporter: told of those that are left out.

    Raises:
        UsageError: unknown subjects, at most 20 of them named; a part that the data set does not have; no subject.
    """
    if isinstance(who, str):
        parts = {str(part): part for part in dataset.panels}
        if who == "all":
            return _some(dataset.everyone, where)
        if (part := parts.get(who)) is not None:
            return _some([Location(part, row) for row in range(dataset.panels[part].n_subjects)], where)
        if who in map(str, Part.all()) and not Path(who).exists():
            fix = f"choose from {', '.join(parts)}"
            raise UsageError(f"the data set has no split {who!r}", where=where, fix=fix)
        who = read_subjects(Path(who), flag=where, beside=["all", *parts])
    names = list(dict.fromkeys(map(str, who)))
    places = dataset.locate(names)
    if unknown := [name for name, place in zip(names, places, strict=True) if place is None]:
        problem, named = f"{len(unknown):,} subjects are not in the data set", [shown(name) for name in unknown]
        if len(unknown) == 1:
            problem, named = f"no subject {unknown[0]} in the data set", []
        hint = None
        try:
            dataset.find_subject(unknown[0])
        except UsageError as error:
            hint = error.fix  # names that are near, or those that there are
        _refuse_or_skip(problem, named, skip=skip, where=where, reporter=reporter, fix=hint)
    found = dict.fromkeys(place for place in places if place is not None)
    order = {part: i for i, part in enumerate(dataset.panels)}
    return _some(sorted(found, key=lambda place: order[place.part]), where)


def with_plans(
    dataset: Dataset,
    places: Sequence[Location],
    request: PlanRequest,
    *,
    skip: bool = False,
    where: str = "--plan",
    reporter: Reporter | None = None,
) -> list[Location]:
    """Return the subjects that have plans of their own in a table of plans.

    Raises:
        UsageError: some have none, or the table has subjects that the data set has not, unless they are left out.
    """
    names = list(map(str, names_of(join_places(dataset, places))))
    known = (name for panel in dataset.panels.values() for name in names_of(panel))
    check_table(names, known, request, skip=skip, where=where, reporter=reporter)
    return _some([place for name, place in zip(names, places, strict=True) if name in request.by_subject], where)


def check_table(
    names: Iterable[object],
    known: Iterable[object],
    request: PlanRequest,
    *,
    skip: bool = False,
    where: str = "--plan",
    reporter: Reporter | None = None,
) -> None:
    """See that a table of plans is about the subjects that are asked about, and about nobody unknown.

    Raises:
        UsageError: subjects without plans, or plans of unknown subjects, unless they are left out.
    """
    there = set(map(str, known))
    if unknown := [shown(name) for name in request.by_subject if name not in there]:
        who = f"{counted(len(unknown), 'subject')} that {'is' if len(unknown) == 1 else 'are'} not in the data"
        fix = "write subjects as the data do"
        problem = f"the table of plans has {who}"
        _refuse_or_skip(problem, unknown, skip=skip, where=where, reporter=reporter, fix=fix)
    if lacking := [name for name in map(str, names) if name not in request.by_subject]:
        problem, fix = f"the table of plans has none for {counted(len(lacking), 'subject')}", "add rows for them"
        _refuse_or_skip(problem, lacking, skip=skip, where=where, reporter=reporter, fix=fix)


def subjects_of_plans(plans: bytes) -> tuple[str, ...]:
    """Return the subjects that a table of plans names, each once; none where it has no column of them.

    Raises:
        UsageError: it is no CSV file.
    """
    rows = csv.DictReader(TextIOWrapper(BytesIO(plans), encoding="utf-8-sig", errors="replace", newline=""))
    try:
        if "subject" not in (rows.fieldnames or ()):
            return ()
        return tuple(dict.fromkeys(name for row in rows if (name := row["subject"])))
    except csv.Error as error:
        raise UsageError(f"the table of plans is no CSV file: {error}", where="--plan") from error


def join_places(dataset: Dataset, places: Sequence[Location]) -> Panel:
    """Return the panel of subjects, in the order of `choose_subjects`; clusters are those of the data set."""
    rows = {part: np.array([p.row for p in places if p.part == part], dtype=np.int64) for part in dataset.panels}
    panels = [dataset.panels[part].take(chosen) for part, chosen in rows.items() if len(chosen)]
    joined = join_panels(panels)
    clusters = [panel.cluster for panel in panels if panel.cluster is not None]
    return replace(joined, cluster=np.concatenate(clusters)) if len(clusters) == len(panels) else joined


def domain_column(places: Sequence[Location]) -> NDArray[np.float64] | None:
    """Return a column that is 1 for subjects of the target domain, whose practice may differ; None of one domain."""
    target_N = np.array([place.part.domain == "target" for place in places], dtype=np.float64)
    return target_N[:, None] if len(target_N) and 0 < target_N.mean() < 1 else None


def names_of(panel: Panel) -> list[object]:
    """Return what subjects are called: their labels as text, or their numbers."""
    return list(panel.names) if panel.label is not None else panel.subject_id.tolist()


def read_subjects(path: Path, *, flag: str, beside: Iterable[str] = ()) -> list[str]:
    """Read what subjects are called: a line for each, or the column `subject` of a CSV file.

    Args:
        path: the file.
        flag: what error messages call the place where it was given.
        beside: what could have been given instead of a file, of which a missing one may be a slip.

    Raises:
        UsageError: the file is missing, empty, too large, no text, JSON, or a table without that column.
        StorageError: it cannot be read.
    """
    try:
        data = read_bounded(path, MOST_BYTES)
    except RefusedError as error:
        if path.exists() and not path.is_dir():
            raise UsageError(f"`{path}` {error}", where=flag, fix=LISTED) from error
        problem = f"`{path}` is neither `all`, a split such as `target/test`, nor a file"
        near = did_you_mean(path.as_posix(), beside)
        fix = f"{near} If not: " * bool(near) + "give a file with a subject per line, or a CSV file"
        raise UsageError(problem, where=flag, fix=fix) from error
    except OSError as error:
        raise StorageError(f"cannot read {shown(str(path))}: {error.strerror}", where=flag) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is no text file", where=flag, fix=LISTED) from error
    if "\0" in text:
        raise UsageError(f"`{path}` is no text file", where=flag, fix=LISTED)
    if _JSON.match(text):
        raise UsageError(f"`{path}` is JSON, no list of subjects", where=flag, fix=LISTED)
    lines = text.splitlines()
    try:
        header = next(csv.reader(lines[:1]), [])
        names = [row["subject"] for row in csv.DictReader(lines)] if "subject" in header else lines
    except csv.Error as error:
        raise UsageError(f"`{path}` is no CSV file: {error}", where=flag, fix=LISTED) from error
    if "subject" not in header and (len(header) > 1 or path.suffix.lower() == ".csv"):
        raise UsageError(f"`{path}` has no column `subject`", where=flag, fix=LISTED)
    if not (found := [name for name in names if name and name.strip()]):
        raise UsageError(f"`{path}` names no subject", where=flag, fix=LISTED)
    return found


def _some(places: list[Location], where: str) -> list[Location]:
    if not places:
        raise UsageError("there is no subject to ask about", where=where)
    return places


def _refuse_or_skip(
    problem: str, who: Sequence[str], *, skip: bool, where: str, fix: str | None, reporter: Reporter | None
) -> None:
    """Warn of subjects that are left out, or stop.

    Raises:
        UsageError: naming some of them.
    """
    named = [*who[:MOST_NAMED], *[f"and {len(who) - MOST_NAMED:,} more"] * (len(who) > MOST_NAMED)]
    if skip:
        left_out = problem + f" ({', '.join(named)})" * bool(named)
        (reporter or NullReporter()).say(Diagnostic.of("subjects-left-out", problem=left_out))
        return
    leave_out = "leave them out" if where.endswith("=") else "add --skip-unknown to leave them out"
    raise UsageError(problem, where=where, fix="; ".join(filter(None, (fix, leave_out))), details=named)


def units_of(cohort: Cohort) -> tuple[NDArray[np.int64], str]:
    """Return the unit of sampling of each moment: the subject, or the cluster where there are several."""
    cluster_N = cohort.panel.cluster
    if cluster_N is not None and len(np.unique(cluster_N)) > 1:
        return cluster_N[cohort.subject_M], "cluster"
    return cohort.subject_M, "subject"
