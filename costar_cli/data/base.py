"""What a data set tells of itself, so that commands, benchmarks, scores and pages need no list of their own.

Light to import: what makes a data set, and what knows its truth, is named and imported when it is called.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field, JsonValue

from costar_cli.config.models import Config, WithAdditions, settings_problems
from costar_cli.reporting import Reporter

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from costar_cli.data.dataset import Dataset

KNOWS_HIDDEN_STATE: Final = "Generator's mean (knows the hidden state)"
"""What tables call a limit that knows more than any history tells, so that no method can reach it."""

HIDDEN: Final = "hidden_confounder"
"""The array of a part's truth with what swayed treatments and outcomes and is not in the panel."""

Answer = Callable[..., Any]
"""`(dataset, part, row, origin, plan_values [H,treatments]) -> outcomes [H,Y]`, or `[H]` of one outcome.

The part's truth was read with the data set. `row` of the part's panel, `origin` and plan may each have a leading axis
`[Q]`, and then so have the outcomes. An answer raises `UsageError` where the data set has no truth of the part, or a
subject, origin or plan is outside what it covers.
"""


def called(reference: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is given, or named as `module:function`."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


EXPERT: Final[dict[str, JsonValue]] = {"expert": True}  # of a setting that the help shows among expert settings


class DropsConfounder(WithAdditions, Config):
    """Settings of a simulator that can leave out of the panel what decided on treatments."""

    additions: ClassVar[tuple[str, ...]] = ("drop_confounder",)
    drop_confounder: bool = Field(
        False,
        description="Leave something that sways treatments and outcomes out of the data",
        json_schema_extra={"flag": "--drop-confounder"},
    )


class CohortConfig(Config):
    """Settings of a simulator of cohorts whose series have one length, with queries from random origins."""

    gamma: float = Field(1.0, ge=0, le=10, description="Confounding strength of the source domain's policy")
    target_gamma: float = Field(0.0, ge=0, le=10, description="Confounding strength of the target domain's policy")
    train: int = Field(1_000, ge=1, le=1_000_000, description="Source subjects for training")
    val: int = Field(300, ge=1, le=1_000_000, description="Source subjects for validation")
    test: int = Field(300, ge=1, le=1_000_000, description="Source subjects for testing")
    target_train: int = Field(50, ge=1, le=1_000_000, description="Target subjects for few-shot training")
    target_val: int = Field(300, ge=1, le=1_000_000, description="Target subjects for few-shot validation")
    target_test: int = Field(300, ge=1, le=1_000_000, description="Target subjects for testing")
    steps: int = Field(30, ge=3, le=1_000, description="Steps simulated per subject")
    horizon: int = Field(6, ge=2, le=100, description="Steps predicted from an origin")
    origins: int = Field(
        6, ge=1, le=1_000, description="Origins with counterfactual queries per test subject", json_schema_extra=EXPERT
    )
    random_plans: int = Field(
        2, ge=0, le=100, description="Plans per origin with random treatment at each step", json_schema_extra=EXPERT
    )
    seed: int = Field(10, ge=0, lt=2**63, description="Seed of the simulation")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file or folder of which a data set is made, in place of what would be simulated.

    Attributes:
        name: of the option, or of the argument of a data set that can only be read.
        help: what it is.
        make: `(settings, path, reporter) -> Dataset`.
        like: `(path, preprocessing, reporter) -> Dataset` of subjects that are new to a model, if it can be read so.
        role: what it is among the data set's parents; by default its name.
        metavar: what stands for it in the help.
        files: `(path) -> {role: file}` for a folder; by default the file itself.
        form: what kind of file it is; by its ending, if empty.
        expected: what to do where there is no such file.
        stands_for: what would be simulated, in the words of messages.
        idle: settings that say nothing where the file is given.
    """

    name: str
    help: str
    make: str | Callable[..., "Dataset"]
    like: str | Callable[..., "Dataset"] | None = None
    role: str = ""
    metavar: str | None = None
    files: str | Callable[["Path"], Mapping[str, "Path"]] | None = None
    form: str | None = None
    expected: str | None = None
    stands_for: str = "what is simulated"
    idle: tuple[str, ...] = ()

    def inputs(self, path: "Path") -> Mapping[str, "Path"]:
        """Return the files to read, by role."""
        return {self.role or self.name: path} if self.files is None else called(self.files)(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Files in which a simulated world can be written, in the form of the real one.

    Attributes:
        name: of the option.
        help: what is written.
        world: `(settings, reporter) -> world`, which `DataSource.make` takes as a third argument.
        check: `(path, *, overwrite)`, called before any work; raises where the files must not be written.
        write: `(path, world, reporter) -> {role: file}`.
        form: what kind of files they are.
    """

    name: str
    help: str
    world: str | Callable[..., Any]
    check: str | Callable[..., None]
    write: str | Callable[..., Mapping[str, "Path"]]
    form: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The data that the paper's tables are about, as a data set's file keeps them; what is not here may differ.

    Attributes:
        settings: settings and facts.
        subjects: how many subjects of each domain were kept; extractions of real data may differ a little.
        truth: what the paper's answers are.
    """

    settings: Mapping[str, object]
    subjects: Mapping[str, int] = field(default_factory=dict)
    truth: Literal["counterfactual", "factual"] = "counterfactual"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What knows the simulator would predict: an error for others to be compared with, never a method (spec LIMIT-1).

    Where a confounder is hidden there is none: treatments then tell of it, which no limit here reckons with.

    Attributes:
        predict: the expected outcomes under plans (see `Answer`), from what `label` says that it knows.
        label: what tables call it.
        needs: arrays of a part's truth without which there is no limit, as in files of older versions.
        unknown_with: arrays of a part's truth with which there is none.
        quantiles: an `Answer` with the shares `[P]` as last argument: the quantiles `[P,Q,H]` of what will be observed
            of a single outcome, given the history; None where they are not known.
    """

    predict: str | Answer
    label: str = "Best possible (knows the simulator)"
    needs: tuple[str, ...] = ()
    unknown_with: tuple[str, ...] = ()
    quantiles: str | Answer | None = None

    def is_known(self, truth: Mapping[str, object]) -> bool:
        """Return whether a part with this truth has a limit."""
        return bool(truth) and set(self.needs) <= set(truth) and not {HIDDEN, *self.unknown_with} & set(truth)


@dataclass(frozen=True, slots=True, kw_only=True)
class Possible:
    """Which values a variable can have: some few, or all that are not below the least."""

    values: tuple[float, ...] = ()
    least: float | None = None

    def refuses(self, values: "NDArray[np.float64]") -> "NDArray[np.bool_]":
        """Return which values cannot be; missing ones (NaN) can."""
        import numpy as np  # noqa: PLC0415 - heavy

        below = np.zeros(values.shape, dtype=bool) if self.least is None else values < self.least
        other = ~np.isin(values, self.values) & ~np.isnan(values) if self.values else False
        refused: NDArray[np.bool_] = below | other
        return refused

    def __str__(self) -> str:
        if self.values:
            return f"takes {', '.join(f'{value:g}' for value in self.values)}"
        return f"is never below {self.least:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """A data set that costar makes: `costar simulate NAME`, or `costar ingest NAME` where it is read from files.

    Attributes:
        name: what commands call it; its settings are `simulate.NAME`.
        label: what tables call it, a word or two.
        summary: what its command does, one sentence.
        settings: its settings; each is an option with the field's description as its help. A field named `horizon` or
            `seed` means what it means elsewhere.
        make: `(settings, reporter) -> Dataset`; None where the data set can only be read from `input`.
        dataset: what its files call themselves, by which presets, published rows and truth are found; else `name`.
        truth: what would have happened under a plan (see `Answer`); None where nobody knows.
        noisy: the same where `truth` is an expectation: with the subject's own noise, not a number after its last step.
            Bands are scored on it.
        limit: what the simulator itself would predict; None where there is none, or nobody knows.
        examples: one or two command lines for the help.
        panel: title of its options in the help.
        presets: what `quick`, `default` and `paper` change in its settings.
        input: a file of which it can be made.
        export: files that can be written of it.
        protocol: the published data of this name.
        possible: by variable, which values it can have, where not every number is one.
    """

    name: str
    label: str
    summary: str
    settings: type[Config]
    make: str | Callable[..., "Dataset"] | None = None
    dataset: str = ""
    truth: str | Answer | None = None
    noisy: str | Answer | None = None
    limit: Limit | None = None
    examples: tuple[str, ...] = ()
    panel: str = "Data set"
    presets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    input: InputFile | None = None
    export: Export | None = None
    protocol: Protocol | None = None
    possible: Mapping[str, Possible] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset", self.dataset or self.name)
        object.__setattr__(self, "examples", self.examples or (f"costar {self.verb} {self.name}",))

    @property
    def verb(self) -> Literal["simulate", "ingest"]:
        """Return the verb that makes it."""
        return "ingest" if self.make is None else "simulate"

    @property
    def section(self) -> str:
        """Return the section of its settings."""
        return f"{self.verb}.{self.name.replace('-', '_')}"

    def simulate(self, settings: Config, reporter: Reporter) -> "Dataset":
        """Make the data set of settings."""
        if self.make is None:
            raise TypeError(f"{self.name} is read from files")
        made: Dataset = called(self.make)(settings, reporter)
        return made

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with an entry that somebody else wrote."""
        if not self.name.replace("-", "").isalnum() or not self.name.isascii() or self.name != self.name.lower():
            yield f"the name {self.name!r} is not made of small letters, digits and `-`"
        if wrong := next(settings_problems(self.settings, self.presets), None):
            yield wrong
        elif taken := sorted(OPTIONS_OF_VERBS & set(self.settings.model_fields)):
            yield f"its setting `{taken[0]}` is called like an option of every verb"
        elif "seed" not in self.settings.model_fields:
            yield "its settings have no `seed`, which says what is drawn"
        if self.make is None:
            yield "it lacks `make`"


OPTIONS_OF_VERBS = {"ctx", "preset", "config", "out", "overwrite", "workspace", "json", "quiet", "debug"} | {
    "help",
    "help_all",
}
