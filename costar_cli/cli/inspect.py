"""`costar inspect`: what a file holds, where it comes from, how it was made; its page, a model's card, its tables."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from json import dumps as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costar_cli.api.outputs import check_outputs, check_page, check_places
from costar_cli.cli.hints import next_command
from costar_cli.cli.options import DataReportOpt, JsonFlag, OverwriteFlag, QuietFlag, ShowOpt, WorkspaceOpt
from costar_cli.cli.session import open_output, read_kind
from costar_cli.cli.training import show_parts
from costar_cli.cli.workspace import DEFAULT_WORKSPACE, Workspace
from costar_cli.config.choices import ExportName
from costar_cli.errors import ArtifactError, CostarError, MismatchError, StorageError, UsageError
from costar_cli.reporting import plain, warnings_of
from costar_cli.reporting.output import Output

if TYPE_CHECKING:
    from costar_cli.data import Dataset
    from costar_cli.data.record import ModelRecord


MOST_LEVELS = 6  # of a treatment that are shown in its cell
LEARNT = {"what": "what", "typical": "typical", "subjects": "90 % of subjects", "carry_over": "carry-over"}
LONGEST_VALUE = 60  # letters of a list among the settings


def inspect(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help="Artifact to inspect (default: the workspace's data set)", show_default=False)
    ] = None,
    report: DataReportOpt = None,
    export: Annotated[
        Path | None, typer.Option("--export", help="Folder to export a data set to, as tables with a schema")
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option("--queries", help="Table of a data set's test queries without answers, for `costar score`"),
    ] = None,
    form: Annotated[
        ExportName, typer.Option("--format", help="What --export writes: tables, or events in the layout of MEDS")
    ] = "parquet",
    overwrite: OverwriteFlag = False,
    workspace: WorkspaceOpt = DEFAULT_WORKSPACE,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    show: ShowOpt = None,
    arrays: Annotated[bool, typer.Option("--arrays", help="List the arrays with types and shapes")] = False,
) -> None:
    """Show an artifact's kind, lineage and variables; no array is read."""
    from costar_cli.files import describe

    out = open_output(ctx, json=json, quiet=quiet, show=show, workspace=None if file else workspace)
    if file is None:
        file = Workspace(workspace).data
        read_kind("dataset", file)
        out.note(f"this is the workspace's data set, {file}")
    content = describe(file)
    config, method = content["config"], content["meta"].get("method")
    if content["kind"] == "model" and isinstance(config, Mapping):  # without those that a baseline does not read
        from costar_cli.methods.registry import METHODS

        own = content["meta"].get("settings")
        config = METHODS[method].shared_settings(config) if method in METHODS else config
        content["config"] = {**config, **({str(method).replace("-", "_"): own} if own else {})}
    told = content["meta"].get("report")
    stored = (told if isinstance(told, Mapping) else content["meta"]).get("warnings")
    if isinstance(stored, list):  # what the making of the artifact warned of
        for warning in warnings_of(f"{content['kind']} `{Path(content['path']).stem}`", map(str, stored)):
            out.say(warning)
    if report is not None or export is not None:
        check_described(file, content["kind"], report, export, form, overwrite=overwrite)
        made: dict[str, Any] = dict(content)
        if report is not None:
            run = run_card if content["kind"] == "model" else run_report
            made["report"] = run(out, file, report)
        if export is not None:
            made["exported"] = run_export(out, file, export, form, overwrite=overwrite)
        out.done(made)
        return
    if queries is not None:
        from costar_cli.data.table.export import query_file, write_queries

        queries = query_file(queries, content["digest"])
        check_outputs([("--queries", queries)], read=[("data set", file)], overwrite=overwrite)
        write_queries(_dataset(file), queries)
        out.wrote("queries", queries)
        out.done({**content, "queries": str(queries)})
        return
    _show_content(out, content, arrays=arrays)
    out.done(content)


def _show_content(out: Output, content: Mapping[str, Any], *, arrays: bool) -> None:
    """Print what an artifact is, holds and was made with, as far as the file, anybody's, says it as costar does."""
    from costar_cli.data.findings import counted
    from costar_cli.data.record import ModelRecord
    from costar_cli.files import flatten

    _show_identity(out, content)
    _show_variables(out, content["meta"].get("schema"))
    record = ModelRecord.read(content["meta"], lenient=True)
    _show_support(out, record)
    _show_survival(out, record.survival)
    for outcome in dict.fromkeys(str(row.get("outcome")) for row in record.learnt or ()):
        own = [row for row in record.learnt or () if str(row.get("outcome")) == outcome]
        cells: list[list[object]] = [[row.get(name) or "" for name in LEARNT] for row in own]
        out.text("")
        out.table(list(LEARNT.values()), cells, title=f"what the model learnt of {outcome}", keys=1)
    show_parts(out, record)
    settings = flatten(content["config"])
    if settings and out.shows("settings"):
        rows = []
        for name, value in settings.items():
            text = json_text(value, ensure_ascii=False)
            if isinstance(value, list) and len(text) > LONGEST_VALUE:  # `--json` has its end
                text = f"{text[:LONGEST_VALUE].rpartition(',')[0]}, ...] ({len(value)} values)"
            rows.append([name, text])
        out.text("")
        out.table(["setting", "value"], rows, title="config")
    if arrays:  # an indented tree: a line per group, then its arrays with type, shape and size
        tree, above = [""], list[str]()
        for array in content["arrays"]:
            *groups, leaf = str(array["name"]).split("/")
            shared = next((i for i, (a, b) in enumerate(zip(above, groups, strict=False)) if a != b), len(above))
            shared = min(shared, len(groups))
            tree += [f"{'  ' * depth}{groups[depth]}/" for depth in range(shared, len(groups))]
            shape = " x ".join(f"{size:,}" for size in array["shape"]) or "scalar"
            tree.append(f"{'  ' * len(groups)}{leaf}  {array['dtype']}  {shape}  {array['bytes']:,} bytes")
            above = groups
        out.text(*tree)
    count = counted(len(content["arrays"]), "array")
    out.more("settings", *["support"] * bool(record.practice or record.survival), files=f"--arrays ({count})")


def _show_identity(out: Output, content: Mapping[str, Any]) -> None:
    """Print what a file is and where it comes from, and how many subjects and steps the splits of a data set have."""
    from costar_cli.files.digest import making_text, makings_of

    makings, calibration = makings_of(content["meta"]), content["meta"].get("calibration")
    calibrated: dict[str, str] = {}
    if isinstance(calibration, Mapping):
        whose = f"{calibration.get('subjects')} {calibration.get('domain')} subjects"
        whose += "" if calibration.get("apart") is True else ", which selected it, too"
        calibrated = {"calibrated on": whose}
    lines = {
        "kind": content["kind"],
        "digest": content["digest"],
        "schema": content["schema_version"],
        "size": f"{content['file_bytes']:,} bytes, {content['array_bytes']:,} unpacked",
        **{
            f"from {role}": digest if out.shows("settings") else digest[:8]
            for role, digest in content["parents"].items()
        },
        **({"made with": "; then ".join(map(making_text, makings))} if makings else {}),
        **calibrated,
    }
    scalars = {name: value for name, value in content["meta"].items() if isinstance(value, str | int | float)}
    if out.shows("settings"):
        lines["written by"] = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    else:
        scalars.pop("fingerprint", None)
    width = max(map(len, (*lines, *scalars)))
    out.text(*(f"{plain(name):<{width}}  {value}" for name, value in (lines | scalars).items()))
    end = "/panel/treatments"
    panels = [array for array in content["arrays"] if array["name"].endswith(end)]
    shapes = {str(array["name"]).removesuffix(end): array["shape"] for array in panels}
    if shapes:
        out.text("")
        rows = [[part, *(f"{size:,}" for size in shape[:2])] for part, shape in shapes.items()]
        out.table(["split", "subjects", "steps at most"], rows, title="splits")


def _show_variables(out: Output, schema: object) -> None:
    """Print the columns of a panel, as far as the file, which may be anybody's, describes them as costar does."""
    if not isinstance(schema, Mapping):
        return
    rows: list[list[object]] = []
    many: dict[str, Sequence[object]] = {}
    for role in ("covariates", "outcomes", "statics"):
        variables = [variable for variable in schema.get(role) or () if isinstance(variable, Mapping)]
        rows += [[role, *(variable.get(field) for field in ("name", "unit", "kind"))] for variable in variables]
    treatments = schema.get("treatments")
    if isinstance(treatments, Mapping):
        names, levels = treatments.get("names") or (), treatments.get("levels") or ()
        for name, labels in zip(names, levels, strict=False):
            if len(labels) <= MOST_LEVELS:
                shown = "/".join(map(str, labels))
            else:
                shown, many[str(name)] = f"{len(labels)} levels" + ", listed below" * out.shows("settings"), labels
            rows.append(["treatments", name, shown, treatments.get("mode")])
        for dose in treatments.get("doses") or ():
            if isinstance(dose, Mapping):
                given = f"{dose.get('low')} to {dose.get('high')} {dose.get('unit') or ''}".rstrip()
                rows.append(["treatments", dose.get("name"), given, f"dose, {dose.get('basis')}"])
    if not schema.get("outcomes"):  # what such data are about
        ends = [end for end in schema.get("ends") or () if isinstance(end, Mapping)]
        kinds = ("loss of follow-up", "event")
        rows += [["ends", end.get("name"), "", kinds[end.get("terminal", True) is True]] for end in ends]
    if rows:
        out.text("")
        out.table(["role", "variable", "unit or levels", "kind"], rows, title="variables")
    for name, labels in many.items() if out.shows("settings") else ():
        out.text("")
        out.table(["number", "level"], list(enumerate(labels)), title=f"levels of {name}, the reference first")


def _show_support(out: Output, record: "ModelRecord") -> None:
    """Print which treatments no training subject was given, and which never stopped, as far as the file tells.

    Of `--show support` also how well the model of treatments is calibrated.
    """
    schema, support = record.schema, record.support
    if schema is not None and support is not None:
        encoding, lines = schema.treatments, dict[str, Sequence[str]]()
        with suppress(IndexError, KeyError, ValueError):  # the two are of different treatments
            lines = {
                "never given": [lack.told for lack in support.unseen(encoding)],
                "never stopped": support.absorbing(encoding),
            }
        kinds: list[list[object]] = [[what, ", ".join(names)] for what, names in lines.items() if names]
        if kinds:
            out.text("")
            out.table(["in training", "treatments"], kinds, title="support")
    rows = (record.practice or {}).get("reliability") if out.shows("support") else None
    rows = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    if rows:
        from costar_cli.data.findings import percent

        shares = [[percent(row.get(name)) for name in ("expected", "observed")] for row in rows]
        cells = [[row.get("treatment"), *two, row.get("decisions")] for row, two in zip(rows, shares, strict=True)]
        out.text("")
        title = "treatment overlap: how often held-out subjects were expected to be treated, and were"
        out.table(["treatment", "expected", "observed", "decisions"], cells, title=title)


def _show_survival(out: Output, survival: "Mapping[str, Any] | None") -> None:
    """Print how right the hazards are on held-out subjects, as far as the file, anybody's, says it."""
    if survival is None:
        return
    from costar_cli.data.findings import percent

    events, held = survival.get("events"), survival.get("held_out")
    if isinstance(events, Mapping):
        whose = f"{survival.get('subjects')} {survival.get('domain')} subjects"
        counts = ", ".join(f"{plain(str(name))} {count}" for name, count in events.items())
        out.text("", f"ends of {plain(whose)} in {survival.get('decisions')} steps: {counts}")
    if isinstance(held, Mapping) and all(
        isinstance(held.get(name), float) for name in ("log_loss", "constant_log_loss")
    ):
        loss, constant = held["log_loss"], held["constant_log_loss"]
        out.text(f"held-out log loss per step: {loss:.4f}; of hazards that are always the same: {constant:.4f}")
    rows = survival.get("reliability") if out.shows("support") else None
    rows = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    cells = [[row.get("end"), *(percent(row.get(name)) for name in ("expected", "observed"))] for row in rows]
    cells = [[*cell, row.get("decisions")] for cell, row in zip(cells, rows, strict=True) if cell[1:] != ["0.0 %"] * 2]
    if cells:
        title = "hazards: how often series of held-out subjects were expected to end at a step, and did (above 0.0 %)"
        out.table(["end", "expected", "observed", "steps"], cells, title=title)


def run_card(out: Output, file: Path, target: Path) -> dict[str, Any]:
    """Write the card of a model; return the digests of what it shows beside the model's file.

    Raises:
        UsageError: the card is asked for on the terminal.
        ArtifactError: the file does not describe a model as costar does.
    """
    if target == TERMINAL:
        raise UsageError("a model card is a page", where="--report", fix="name a file: `--report card.html`")
    check_places([("--report", target)], read=[("artifact", path) for path in file.parent.glob("*.h5")])
    check_page(target, flag="--report")
    from costar_cli.data.report import describe_dataset
    from costar_cli.data.store import read_dataset
    from costar_cli.evaluation import read_evaluation
    from costar_cli.files import describe, read_header, write_bytes
    from costar_cli.report.pages.card import model_card

    content = describe(file)
    data, evaluations = None, {}
    for path in sorted(file.parent.glob("*.h5")):
        try:
            header = read_header(path)
        except (CostarError, OSError):
            continue
        if header.kind == "dataset" and header.digest == content["parents"].get("dataset") and data is None:
            out.read("dataset", path, header.digest)
            dataset = read_dataset(path, truth=False)
            data = describe_dataset(dataset) if dataset.digest == header.digest else None  # replaced meanwhile
        elif header.kind == "evaluation" and content["digest"] in header.parents.values():
            out.read(path.stem, path, header.digest, "evaluation")
            evaluations[header.digest] = read_evaluation(path, errors=False)
    try:
        page = model_card(content, data, evaluations)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        what = str(error).splitlines()[0]
        fix = "`costar inspect FILE --json` shows what it holds"
        raise ArtifactError(
            "the file does not describe its model as costar does", where=f"{file}: {what}", fix=fix
        ) from error
    write_bytes(target, page.encode())
    out.wrote("report", target, kind="html")
    return {"dataset": data.digest if data else None, "evaluations": list(evaluations)}


TERMINAL = Path("-")


def run_report(out: Output, file: Path, target: Path) -> dict[str, Any]:
    """Describe a data set in tables on stdout (`-`), or in a page; return the numbers."""
    from costar_cli.data.report import describe_dataset
    from costar_cli.inference.overlap import describe_overlap

    dataset = _dataset(file)
    report, overlap = describe_dataset(dataset), describe_overlap(dataset)
    if target == TERMINAL:
        from costar_cli.report.pages import report_tables

        for i, table in enumerate(report_tables(report, overlap)):
            out.text(*[""] * bool(i))
            out.table(table.headers, table.rows, title=table.title)
        if report.findings:
            out.text("")
            rows = [[finding.severity, str(finding)] for finding in report.findings]
            out.table(["findings", ""], rows)
    else:
        from costar_cli.files import write_bytes
        from costar_cli.report.pages import report_page

        write_bytes(target, report_page(report, overlap).encode())
        out.wrote("report", target, kind="html")
    return {**report.to_json(), "overlap": overlap.to_json()}


def check_described(
    file: Path, kind: str, report: Path | None, export: Path | None, form: ExportName, *, overwrite: bool
) -> None:
    """See, before any work, that the page and the tables about a file can be written, and replace nothing.

    Raises:
        ArtifactError: tables are asked for of what is no data set.
        MismatchError: an output is the file, or what it was made from, or exists and may not be replaced.
        StorageError: an output is no regular file, or the folder of the page does not exist, or that of tables is none.
        UsageError: the page and a table have the same name.
    """
    page, tables = None if report == TERMINAL else report, list[tuple[str, Path]]()
    if export is not None:
        from costar_cli.data.events.export import meds_export_files
        from costar_cli.data.table import table_config
        from costar_cli.data.table.export import export_files
        from costar_cli.data.table.schema_file import read_schema

        scores = "an evaluation holds scores alone: `costar evaluate --predictions FILE` writes what they are of"
        header = read_kind("dataset", file, fix=scores if kind == "evaluation" else "")
        if export.exists() and not export.is_dir():
            raise StorageError(f"`{export}` is no folder", where="--export", fix="choose another name")
        files = meds_export_files(export) if form == "meds" else export_files(export, form)
        config, is_own = header.meta.get("config"), False
        if form != "meds" and isinstance(config, Mapping) and files["schema"].is_file():
            with suppress(CostarError, OSError):  # a file may say the same in other words
                said = table_config(read_schema(files["schema"], accept_guesses=True), None)
                is_own = said.items() <= config.items()
        if is_own:
            problem = f"`{files['schema']}` is the schema behind the data set that is read"
            raise MismatchError(problem, where="--export", fix="choose another folder")
        tables = [("--export", path) for path in files.values()]
    read = [("data set" if kind == "dataset" else kind, file)]
    check_places([("--report", page), *tables], read=read)
    there = [(flag, path) for flag, path in tables if path.exists()]  # the folder of the others may be made
    check_outputs([("--report", page), *there], read=(), overwrite=overwrite)
    check_page(page, flag="--report")


def run_export(out: Output, file: Path, folder: Path, form: ExportName, *, overwrite: bool) -> list[str]:
    """Write a data set as tables or events, with what reads them back; return the paths."""
    from costar_cli.data.events.export import export_meds
    from costar_cli.data.table.export import export_dataset

    dataset = _dataset(file)
    if form == "meds":
        paths = export_meds(dataset, folder, overwrite=overwrite)
    else:
        paths = export_dataset(dataset, folder, form, overwrite=overwrite)
    for path in paths:
        out.wrote(path.stem, path, kind=path.suffix.removeprefix("."))
    if form == "meds":
        out.next(next_command({}, "ingest meds", str(folder), signals=paths[-1]))
        return [str(path) for path in paths]
    known = [path for path in paths if path.stem == "queries"]
    schema = next(path for path in paths if path.stem == "schema")
    out.next(next_command({}, "ingest table", str(paths[0]), schema=schema, queries=known))
    return [str(path) for path in paths]


def _dataset(file: Path) -> "Dataset":
    from costar_cli.data.store import read_dataset

    read_kind("dataset", file)
    return read_dataset(file, truth=False)
