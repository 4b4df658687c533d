"""Data sets of logs of clinical events, in the formats of `costar_cli/data/events/log.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costar_cli.api.calls import PathLikeText, Progress, one_of, reporting
from costar_cli.data.dataset import LIKE, Dataset
from costar_cli.data.events.log import FORMATS
from costar_cli.data.store import made_from
from costar_cli.errors import MismatchError, UsageError
from costar_cli.reporting import Reporter

if TYPE_CHECKING:
    from costar_cli.api.model import Model
    from costar_cli.data.events import SignalsSchema
    from costar_cli.data.table.guess import GuessedSchema
    from costar_cli.data.table.preprocessing import Preprocessing


def read_events(
    path: PathLikeText,
    *,
    form: str = "meds",
    signals: PathLikeText | Mapping[str, object] | None = None,
    like: "Model | Dataset | PathLikeText | None" = None,
    seed: int | None = None,
    accept_guesses: bool = False,
    progress: Progress = False,
) -> Dataset:
    """Make a data set of a log of clinical events, as `costar ingest meds` does.

    Args:
        path: the log: of `meds` the folder that `data` and `metadata` are in, of `omop` one of tables or a DuckDB
            file.
        form: its format, what `costar ingest` calls it.
        signals: a TOML file that says which events make which signal, or the same as a dictionary.
        like: in place of `signals` a model, the data set that it was trained on, or the file of either: the subjects
            are new to it, and their events are read as its were.
        seed: seed of the split, where the log has none.
        accept_guesses: take what `costar ingest meds --init` guessed and nobody has settled.
        progress: True for progress on stderr, or a `Reporter`.

    Raises:
        UsageError: a file of signals that is not understood, or no such format.
        MismatchError: the model or data set was not made of a log of events.
        DataError: the log cannot be used; the message names codes, files and fixes, as many at once as possible.
    """
    from costar_cli.api.data import preprocessing_of
    from costar_cli.data.events import parse_signals, read_signals

    one_of(form, FORMATS, "form", "format of logs")
    if (signals is None) == (like is None):
        raise UsageError("give `signals` or `like`, one of them", where="signals=")
    if seed is not None and not 0 <= seed < 2**63:
        raise UsageError(f"{seed} is not a valid seed", where="seed=", fix="use a whole number, 0 or larger")
    with reporting(progress) as reporter:
        log = LogCall(form, Path(path), reporter)
        if like is not None:
            how, parents = preprocessing_of(like)
            return made_from(log.new(how), config={LIKE: how.digest}, parents={"events": log.digest, **parents})
        if isinstance(signals, Mapping):
            schema = parse_signals(signals, where="signals=")
        else:
            schema = read_signals(Path(str(signals)), accept_guesses=accept_guesses)
        dataset = log.dataset(schema, seed)
        return made_from(dataset, config=log.config(schema, seed), parents={"events": log.digest})


@dataclass(frozen=True)
class LogCall:
    """A log of events to be read: its format, where it is, and who hears of it."""

    form: str
    path: Path
    reporter: Reporter

    @cached_property
    def digest(self) -> str:
        """Return the digest of all files of the log."""
        return FORMATS[self.form].digest(self.path)

    def config(self, schema: "SignalsSchema", seed: int | None) -> dict[str, Any]:
        """Return what makes a data set of the log that data set."""
        from costar_cli.data.events.ingest import events_config

        return events_config(schema, seed)

    def dataset(self, schema: "SignalsSchema", seed: int | None) -> Dataset:
        """Return the data set of the log.

        Raises:
            MismatchError: a file has changed while it was read.
        """
        from costar_cli.data.events.ingest import ingest_events

        before, events = self.digest, FORMATS[self.form].open(self.path, self.reporter, pairs=schema.pairs)
        dataset = ingest_events(events, schema, self.reporter, seed=seed)
        self._require_same(before)
        return dataset

    def new(self, like: "Preprocessing") -> Dataset:
        """Return the data set of subjects that are new to a model.

        Raises:
            MismatchError: a file has changed while it was read, or the model's data were no log of events.
        """
        from costar_cli.data.events.ingest import ingest_new_events, signals_of

        before, pairs = self.digest, signals_of(like).pairs
        dataset = ingest_new_events(FORMATS[self.form].open(self.path, self.reporter, pairs=pairs), like, self.reporter)
        self._require_same(before)
        return dataset

    def proposal(self) -> "GuessedSchema":
        """Return signals to start from."""
        from costar_cli.data.events.propose import PAIRED_BY, propose_signals

        return propose_signals(FORMATS[self.form].open(self.path, self.reporter, pairs=[PAIRED_BY]))

    def _require_same(self, before: str) -> None:
        if FORMATS[self.form].digest(self.path) != before:
            problem = "a file was replaced while it was read"
            raise MismatchError(problem, where=str(self.path), fix="run the same command again")
