"""The data set: panels of two domains and three splits, their queries, and the simulator's truth if there is one."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.config.choices import DomainName
from costar_cli.config.nearest import nearly, spelt_otherwise
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries
from costar_cli.data.schema import JOINT, PanelSchema
from costar_cli.errors import DataError, UsageError
from costar_cli.reporting import plain
from costar_cli.reporting.display import Displayed

MOST_DIGITS = 19  # of a subject's number, an int64
MOST_COMPARED = 20_000  # labels searched for a near one
MOST_OFFERED = 3
MOST_NAMED = 8

LIKE = "like"  # of the config of new subjects: digest of the data set as which they were read

Domain = DomainName
Split = Literal["train", "val", "test"]


class Part(NamedTuple):
    """A domain and a split, for example `source/train`."""

    domain: Domain
    split: Split

    def __str__(self) -> str:
        return f"{self.domain}/{self.split}"

    @classmethod
    def all(cls) -> list["Part"]:
        """Return the six parts in canonical order."""
        return [cls(domain, split) for domain in get_args(Domain) for split in get_args(Split)]


class Location(NamedTuple):
    """Where a subject is: its part and its row there."""

    part: Part
    row: int


@dataclass(frozen=True, repr=False)
class Dataset(Displayed):
    """Everything that a `data.h5` holds.

    A subject is in one part, or in several where these are spans of time: no outcome is then to be predicted in two.
    `queries[part]` maps a name (`one_step`, `sequence`, `rolling_origin`) to the query set on that part's panel.
    `truth[part]` holds arrays of the simulator (per-subject parameters and noise), by name, empty for observed data.
    `horizon` is tau, the number of steps that models predict. `parents` are the digests of the files that it was read
    from, by role, and `fingerprint` that of all it was made from; `digest` is its file's. All three may be unknown.
    """

    name: str
    schema: PanelSchema
    horizon: int
    panels: Mapping[Part, Panel]
    queries: Mapping[Part, Mapping[str, Queries]] = field(default_factory=dict)
    truth: Mapping[Part, Mapping[str, NDArray[np.generic]]] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)
    digest: str = ""
    fingerprint: str = ""
    parents: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.panels:
            raise DataError("the data set has no subjects")
        # The ids of subjects with an outcome that is to be predicted in two parts, or twice in one
        panels = list(self.panels.values())
        begin = [np.zeros_like(panel.length) if panel.since is None else panel.since for panel in panels]
        ids, begins = np.concatenate([panel.subject_id for panel in panels]), np.concatenate(begin)
        order = np.lexsort((begins, ids))
        ids, begins, ends = ids[order], begins[order], np.concatenate([panel.length for panel in panels])[order]
        shared = (ids[1:] == ids[:-1]) & (begins[1:] < ends[:-1])
        if twice := [int(number) for number in np.unique(ids[1:][shared])]:
            raise DataError(f"subject ids are not unique in the data set: {', '.join(map(str, twice[:5]))}")
        named = {
            pair
            for panel in self.panels.values()
            if panel.label is not None
            for pair in zip(panel.label.tolist(), panel.subject_id.tolist(), strict=True)
        }
        uses = Counter(name for name, _ in named)
        if again := sorted(name for name, n in uses.items() if n > 1):
            raise DataError(f"subject labels are not unique in the data set: {', '.join(again[:5])}")
        if lost := (set(self.queries) | set(self.truth)) - set(self.panels):
            raise DataError(f"queries or truth without a panel: {', '.join(sorted(str(part) for part in lost))}")

    @property
    def headline(self) -> str:
        """Return its name, the most steps that models predict, and the begin of its digest."""
        return f"{self.name}, horizon {self.horizon}{f', {self.digest[:8]}' if self.digest else ''}"

    def __getitem__(self, part: str | tuple[Domain, Split]) -> Panel:
        """Return the panel of a part by its name, such as `source/train`.

        Raises:
            DataError: the data set has no such part.
        """
        name = part if isinstance(part, str) else "/".join(map(str, part))
        found = next((panel for own, panel in self.panels.items() if str(own) == name), None)
        if found is None:
            raise DataError(f"the data set has no split {name!r}", fix=f"it has {', '.join(self)}")
        return found

    def __contains__(self, part: object) -> bool:
        return str(part) in set(self)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of its parts."""
        return iter([str(part) for part in self.panels])

    def __repr__(self) -> str:
        what, names = "outcomes", [outcome.name for outcome in self.schema.outcomes]
        if not names:
            what, names = "events", list(self.schema.terminal.values())
        lines = [
            plain(f"<Dataset {self.headline}"),
            *(f"{p}: {panel.n_subjects:,} subjects, {panel.length.sum():,} steps" for p, panel in self.panels.items()),
            f"{what}: {_some(names)}",
            f"treatments: {_some(self.schema.treatments.all_names)}>",
        ]
        return "\n  ".join(lines)

    @property
    def is_new(self) -> bool:
        """Return whether its subjects are new to models: read as another data set was, with nobody to train on."""
        return LIKE in self.config

    @property
    def known_as(self) -> str:
        """Return the digest by which models know it: its own, of new subjects that of the data they are like."""
        return str(self.config.get(LIKE, self.digest))

    @property
    def everyone(self) -> list[Location]:
        """Return where each subject is, part after part: in the last of its parts, which has its whole series."""
        last = {number: part for part, panel in self.panels.items() for number in panel.subject_id.tolist()}
        return [
            Location(part, row)
            for part, panel in self.panels.items()
            for row, number in enumerate(panel.subject_id.tolist())
            if last[number] == part
        ]

    def panel(self, domain: Domain, split: Split) -> Panel:
        """Return one part's panel.

        Raises:
            DataError: the data set has no such part.
        """
        part = Part(domain, split)
        if part not in self.panels:
            has = ", ".join(str(p) for p in self.panels)
            raise DataError(f"the data set has no {part} subjects", fix=f"it has {has}")
        return self.panels[part]

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the data set to a file, as `costar simulate` and `costar ingest` do.

        Raises:
            DataError: the data set breaks an invariant that a reader would reject.
            MismatchError: the file exists and `overwrite` is false.
            StorageError: the disk is full, read-only or forbidden.
        """
        from costar_cli.data.store import write_dataset  # noqa: PLC0415 - it knows this class, and needs HDF5

        write_dataset(Path(path), self, overwrite=overwrite)

    def find_subject(self, subject: int | str) -> Location:
        """Return where a subject is, in whatever domain and split, by what the data call it.

        A subject of several parts is found in the last of them. A label is compared as text, letter by letter: `7` is
        not `07`, nor is ` 07`. Subjects without labels are called by number.

        Raises:
            UsageError: no subject is called so; the message names what exists.
        """
        wanted = str(subject)
        place = self.locate([wanted])[0]
        if place is not None:
            return place
        filled = {part: panel for part, panel in self.panels.items() if panel.n_subjects}
        labels = [str(name) for panel in filled.values() if panel.label is not None for name in panel.label]
        near = spelt_otherwise(wanted, labels)[:MOST_OFFERED] or nearly(wanted, labels[:MOST_COMPARED], MOST_OFFERED)
        if near:
            fix = f"did you mean {' or '.join(near)}?"
        elif labels:
            firsts = (f"{part}: {x.label[0]}, ..." for part, x in filled.items() if x.label is not None)
            fix = f"choose from {'; '.join(firsts)}"
        else:
            ranges = (f"{part}: {x.subject_id.min()} to {x.subject_id.max()}" for part, x in filled.items())
            fix = f"choose from {'; '.join(ranges)}"
        if self.schema.subject:
            fix = f"subjects are called {JOINT.join(self.schema.subject)}: {fix}"
        name = wanted if wanted == wanted.strip() else repr(wanted)
        raise UsageError(f"no subject {name} in the data set", where="--subject", fix=fix)

    def locate(self, subjects: Iterable[int | str]) -> "list[Location | None]":
        """Return where subjects are, as `find_subject` finds one; None for those that are nowhere."""
        labelled: dict[str, Location] = {}
        numbered: dict[int, Location] = {}
        for part, panel in self.panels.items():
            own = (Location(part, row) for row in range(panel.n_subjects))
            if panel.label is None:
                numbered.update(zip(panel.subject_id.tolist(), own, strict=True))
            else:
                labelled.update(zip(panel.label.tolist(), own, strict=True))
        wanted = [str(subject) for subject in subjects]
        places = [labelled.get(name) for name in wanted]
        for i, text in enumerate(name.strip() for name in wanted):
            if places[i] is None and text.removeprefix("-").isdecimal() and len(text) < MOST_DIGITS:
                places[i] = numbered.get(int(text))
        return places

    def panel_of(self, location: Location) -> Panel:
        """Return the panel of one subject."""
        return self.panels[location.part].take(np.array([location.row]))


def _some(names: Sequence[str]) -> str:
    """Return names for people, the first of them where there are many."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return plain(", ".join(names[:MOST_NAMED])) + more


def simulated_truth(dataset: Dataset, part: Part, needed: Collection[str]) -> Mapping[str, NDArray[Any]]:
    """Return the arrays of a part's truth.

    Raises:
        UsageError: the data set lacks one that is needed.
    """
    truth = dataset.truth.get(part, {})
    if not set(needed) <= set(truth):
        raise UsageError(
            f"this data set has no simulated truth of {part}",
            where="--truth",
            fix=f"omit --truth, or use a data set from `costar simulate {dataset.name}`",
        )
    return truth


@dataclass(frozen=True, slots=True)
class AskedPlans:
    """Q questions: rows of a part's panel, origins, and plans `[Q,H,...]`; `single` where one was asked alone.

    `length_N` counts the observed steps of the part's subjects.
    """

    length_N: NDArray[np.int64]
    row_Q: NDArray[np.int64]
    origin_Q: NDArray[np.int64]
    plan_QH: NDArray[Any]
    single: bool

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        part: Part,
        row: int | ArrayLike,
        origin: int | ArrayLike,
        plan: NDArray[Any],
        *,
        plan_axes: int = 2,
    ) -> Self:
        """Return what is asked; one row, origin or plan of `plan_axes` axes stands for as many as there are of others.

        Raises:
            UsageError: the part has no such row.
        """
        length_N = dataset.panels[part].length
        single = plan.ndim == plan_axes and np.ndim(row) == 0 and np.ndim(origin) == 0
        plan_QH = plan if plan.ndim > plan_axes else plan[None]
        n_queries = max(len(plan_QH), np.size(row), np.size(origin))
        row_Q = np.broadcast_to(np.asarray(row, dtype=np.int64), (n_queries,))
        if ((row_Q < 0) | (row_Q >= len(length_N))).any():
            raise UsageError(f"rows of {part} go from 0 to {len(length_N) - 1}")
        return cls(
            length_N=length_N,
            row_Q=row_Q,
            origin_Q=np.broadcast_to(np.asarray(origin, dtype=np.int64), (n_queries,)),
            plan_QH=np.broadcast_to(plan_QH, (n_queries, *plan_QH.shape[1:])),
            single=single,
        )

    @property
    def horizon(self) -> int:
        """Return H."""
        return int(self.plan_QH.shape[1])

    def within_series(self) -> Self:
        """Return these questions, whose origins are observed steps of their subjects.

        Raises:
            UsageError: the first one that is not, and which are.
        """
        last_Q = self.length_N[self.row_Q] - 1
        beyond = (self.origin_Q < 0) | (self.origin_Q > last_Q)
        if beyond.any():
            fix = f"choose an origin from 0 to {last_Q[beyond][0]}"
            raise UsageError(f"origin {self.origin_Q[beyond][0]} is outside the series", fix=fix)
        return self

    def shaped(self, answer_QH: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return answers `[Q,...]` as they were asked for: that to a single question without its axis."""
        return answer_QH[0] if self.single else answer_QH
