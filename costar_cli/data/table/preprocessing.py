"""How a data set was made of its table, so that new subjects can be read the same way: stored, or told by a model."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from costar_cli.data.base import Possible
from costar_cli.data.dataset import Dataset, Domain, Part
from costar_cli.data.record import ModelRecord
from costar_cli.data.registry import all_sources
from costar_cli.data.schema import PanelSchema, Variable
from costar_cli.data.table.context import EncodingContext, Learned
from costar_cli.data.table.export import free_names
from costar_cli.data.table.schema import DomainSchema, QueriesSchema, TableSchema
from costar_cli.data.table.schema_column import ENDS, ColumnSchema, TimeSchema
from costar_cli.data.table.splits import condition_readings, has_target
from costar_cli.data.table.treatments import dose_column
from costar_cli.data.table.variables import OTHER
from costar_cli.data.transforms import Scaler
from costar_cli.errors import ArtifactError, MismatchError

if TYPE_CHECKING:
    from costar_cli.files import Artifact

KEY: Final = "preprocessing"  # of a data set's config, and of the meta of what was trained on it
OBSERVED: Final = "_observed"  # ends the name of the 0/1 column beside one that was filled
OPTIONAL: Final = ("domain", "cluster", *ENDS)  # roles that new subjects need not have


def to_json(context: EncodingContext, panel: PanelSchema) -> dict[str, Any]:
    """Return the preprocessing of a table as its data set keeps it: schema without guesses, and what was learned."""
    learned, levels = context.learned, dict(zip(panel.treatments.names, panel.treatments.levels, strict=True))
    columns, masks, dropped = {}, {*learned.masks}, {*context.dropped}
    for name, column in context.schema.columns.items():
        chosen: dict[str, Any] = {"levels": list(levels[name])} if name in levels else {}
        if name in learned.categories:
            chosen["categories"] = list(learned.categories[name])
        if column.role in ("covariate", "static", "outcome"):
            chosen["indicator"] = name in masks
        if name not in dropped:
            columns[name] = column.model_copy(update=chosen)
    encoding = panel.treatments
    labels = [[known[i] for known, i in zip(encoding.levels, row, strict=True)] for row in encoding.classes]
    treatments = context.schema.treatments.model_copy(update={"mode": encoding.mode, "classes": labels or None})
    clock = context.schema.time
    if clock.stop:
        clock = clock.model_copy(update={"closed": bool(context.table.readings[clock.stop].after)})
    resolved = context.schema.model_copy(
        update={"columns": columns, "constant": "keep", "treatments": treatments, "time": clock}
    )
    facts = {name: {key: value for key, value in asdict(learned)[name].items() if key in columns}
             for name in ("fills", "ranges")}  # fmt: skip
    return {"schema": resolved.model_dump(mode="json", exclude_defaults=True)} | facts


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """What makes a panel of a table as another data set's was made.

    Attributes:
        panel: what the columns become.
        learned: what source-train taught.
        stored: the preprocessing as a file keeps it, where one does.
        schema: what the columns are, with all levels, classes and categories; None where the panel is all that is
            known, as of simulated data: columns are then called as its variables.
        horizon: steps predicted.
        name: of the data set.
        digest: of the data set, empty where it is not known.
        domain: where subjects belong of whom the table does not say it.
        trained: ids of the subjects that the data set learns from, where it is at hand.
    """

    panel: PanelSchema
    learned: Learned
    schema: TableSchema | None
    stored: Mapping[str, Any] | None
    horizon: int
    name: str
    digest: str
    domain: Domain = "source"
    trained: frozenset[str] = frozenset()

    @classmethod
    def of_dataset(cls, dataset: Dataset) -> Self:
        """Return how a data set was made of its table, or how one of its kind would be read.

        Raises:
            MismatchError: it is of a table, and does not say how it was read.
        """
        made = cls._made(
            dataset.config.get(KEY), dataset.name,
            panel=dataset.schema, horizon=dataset.horizon, digest=dataset.known_as,
            trained=frozenset(
                name for part, panel in dataset.panels.items() if part.split == "train" for name in panel.names
            ),
        )  # fmt: skip
        if made.schema is not None:
            return made
        train = dataset.panel("source", "train")
        known = made.with_means(Scaler.fit(train, dataset.schema))
        # The least and greatest value of each variable of a training panel
        schema = dataset.schema
        seen, found = train.observed, {}
        for variables, values in (
            (schema.covariates, train.covariates[seen]),
            (schema.outcomes, train.outcomes[seen]),
            (schema.statics, train.statics),
        ):
            for variable, low, high in zip(variables, values.min(axis=0), values.max(axis=0), strict=True):
                found[variable.name] = float(low), float(high)
        return replace(known, learned=replace(known.learned, ranges=found))

    @classmethod
    def of_model(cls, record: ModelRecord, scaler: Scaler, parents: Mapping[str, str], *, insist: bool = True) -> Self:
        """Return how the data of a model were read.

        Args:
            record: of its file.
            scaler: its means.
            parents: digests of what it was made from.
            insist: on a stored preprocessing where the data were a table; without it, their columns are those of the
                panel.

        Raises:
            MismatchError: its data were of a table, and it does not say how that was read.
        """
        made = cls._made(
            record.preprocessing, record.dataset_name or "", insist=insist, panel=record.schema,
            horizon=record.horizon, digest=parents.get("dataset", ""), domain=record.domain or "source",
        )  # fmt: skip
        return made if made.schema is not None else made.with_means(scaler)

    @classmethod
    def _made(cls, kept: object, name: str, *, insist: bool = True, **known: Any) -> Self:  # noqa: ANN401
        doses = {dose.name: dose for dose in known["panel"].treatments.doses}
        if isinstance(kept, Mapping):
            try:
                schema = TableSchema.model_validate(kept["schema"])
                fills = {column: float(value) for column, value in kept["fills"].items()}
                ranges = {column: (float(low), float(high)) for column, (low, high) in kept["ranges"].items()}
            except (ValueError, TypeError, KeyError, AttributeError):
                problem = "what it says of how its table was read is not as costar wrote it"
                raise ArtifactError(problem, where="preprocessing", fix="ingest the table and train again") from None
            learned = Learned(fills=fills, ranges=ranges, doses=doses)
            return cls(schema=schema, stored=kept, learned=learned, name=name, **known)
        if insist and name not in {source.dataset for source in all_sources()}:
            raise MismatchError(
                f"it does not hold how the table of `{name}` was read: it was made by an older version of costar",
                where="--like",
                fix="ingest that table and train again (`--overwrite`), or give the data set if it is of this version",
            )
        return cls(schema=None, stored=None, learned=Learned(doses=doses), name=name, **known)

    @property
    def possible(self) -> Mapping[str, Possible]:
        """Return which values variables can have, as far as the registry of simulated data knows."""
        if self.schema is not None:
            return {}
        return next((source.possible for source in all_sources() if source.dataset == self.name), {})

    @property
    def has_target(self) -> bool:
        """Return whether the other data set tells a target from the source."""
        return self.schema is None or has_target(self.schema)

    def with_means(self, scaler: Scaler) -> Self:
        """Return it with the means of a scaler for what is missing."""
        parts = [(self.panel.covariates, scaler.covariates), (self.panel.outcomes, scaler.outcomes)]
        parts += [(self.panel.statics, scaler.statics)]
        fills = {
            variable.name: float(mean)
            for variables, moments in parts
            for variable, mean in zip(variables, np.asarray(moments)[0], strict=True)
            if variable.standardize
        }
        return replace(self, learned=replace(self.learned, fills=fills))

    def schema_for(
        self,
        columns: Collection[str],
        *,
        subject: str | None = None,
        time: str | None = None,
        clock: TimeSchema | None = None,
    ) -> TableSchema:
        """Return the schema of a table of new subjects that has these columns.

        Subjects of any length are read, outcomes may be missing, and nothing says how to split.

        Args:
            columns: what the table has.
            subject: its column of subjects, where it is called otherwise.
            time: its column of time, likewise.
            clock: how times become steps, if not as the schema says.
        """
        schema = self.schema
        if schema is None:  # columns are called as the variables of the panel
            panel, encoding, words = self.panel, self.panel.treatments, free_names(self.panel)
            known = {words["subject"]: ColumnSchema(role="subject"), words["time"]: ColumnSchema(role="time")}
            known[words["domain"]] = ColumnSchema(role="domain", source="source", target="target")
            known |= dict(self._columns("outcome", panel.outcomes, columns))
            for name, levels in zip(encoding.names, encoding.levels, strict=True):
                known[name] = ColumnSchema(role="treatment", levels=list(levels))
            for dose in encoding.doses:
                known[dose.name] = ColumnSchema(**dose_column(dose))
            known |= dict(self._columns("covariate", panel.covariates, columns))
            known |= dict(self._columns("static", panel.statics, columns))
            classes = [[of[i] for of, i in zip(encoding.levels, row, strict=True)] for row in encoding.classes]
            schema = TableSchema.model_validate({
                "name": "data", "horizon": self.horizon, "constant": "keep", "columns": known,
                "time": TimeSchema(unit=panel.step), "error_unit": panel.error_unit.model_dump(),
                "treatments": {"mode": encoding.mode, "classes": classes or None},
            })  # fmt: skip
        made = {}
        for name, column in schema.columns.items():
            if column.role == "split" or (column.role in OPTIONAL and schema.in_file(name) not in columns):
                continue
            called = {"subject": subject, "time": time}.get(column.role) or name
            fill = {"missing": "fill"} if column.role == "outcome" else {}
            made[called] = column.model_copy(update=fill)
        if schema.subject is not None and subject:
            made[subject] = ColumnSchema(role="subject")
        joint = None if subject else schema.subject
        changed: dict[str, Any] = {"columns": made, "min_length": 1, "queries": QueriesSchema(), "subject": joint}
        if not set(condition_readings(schema)) <= set(columns):
            changed["domain"] = DomainSchema()
        if schema.time.stop and schema.time.stop not in columns:
            changed["time"] = schema.time.model_copy(update={"stop": None})
        return schema.model_copy(update=changed | ({} if clock is None else {"time": clock}))

    def _columns(
        self, role: str, variables: tuple[Variable, ...], columns: Collection[str]
    ) -> Iterator[tuple[str, ColumnSchema]]:
        """Yield the columns of variables: one each, or one for all categories, or for what was observed of another."""
        every = {variable.name for variable in (*self.panel.covariates, *self.panel.statics)}
        for variable in variables:
            name, equals, _ = variable.name.partition("=")
            base = variable.name.removesuffix(OBSERVED)
            if variable.name not in columns and base != variable.name and base in columns:
                continue  # made beside the column itself
            raw = bool(equals) and variable.kind == "binary" and variable.name not in columns
            known: dict[str, Any] = {"standardize": variable.standardize, "unit": variable.unit, "role": role}
            if raw:
                own = [v.name.partition("=")[2] for v in variables if v.name.startswith(f"{name}=")]
                named = [label for label in own if label != OTHER]
                known |= {"kind": "categorical", "categories": named, "unseen": "other" if OTHER in own else "error"}
            else:
                known |= {"kind": variable.kind}
            called = name if raw else variable.name
            masked = f"{called}{OBSERVED}" in every and f"{called}{OBSERVED}" not in columns
            known |= {"indicator": masked, "missing": "fill" if f"{called}{OBSERVED}" in every else "error"}
            yield called, ColumnSchema(**known)


def preprocessing_at(path: Path) -> tuple[Preprocessing, "Artifact"]:
    """Return how the table of a data set was read, or that of a model, and the header of the file.

    Raises:
        ArtifactError: no such file, or not one of these.
        MismatchError: the file does not hold it.
    """
    from costar_cli.data.store import read_dataset  # noqa: PLC0415
    from costar_cli.files import complete, read_artifact, read_header  # noqa: PLC0415 - they need HDF5
    from costar_cli.files.spec import a_kind  # noqa: PLC0415

    header = read_header(path)
    if header.kind == "dataset":
        known = [part for part in Part.all() if str(part) in header.meta["parts"]]
        parts = [part for part in known if part.split == "train"] or known[:1]
        return Preprocessing.of_dataset(read_dataset(path, queries=False, truth=False, parts=parts)), header
    if header.kind != "model":
        fix = "give a model or the data set that one was trained on"
        raise ArtifactError(f"the file holds {a_kind(header.kind)}", where=str(path), fix=fix)
    model = read_artifact(path, only=["scaler"])
    with complete(model):
        record = ModelRecord.read(header.meta)
        if record.schema is None:
            raise ValueError("schema is missing")
        scaler = Scaler.read(model.arrays, record.schema)
    return Preprocessing.of_model(record, scaler, header.parents), header
