"""The bodies of `costar inspect --report` and `--export`: a data set described, and written as tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from costar_cli.config.choices import FormatName
from costar_cli.errors import ArtifactError, MismatchError
from costar_cli.steps.hints import next_command
from costar_cli.ui.output import Output

if TYPE_CHECKING:
    from costar_cli.panel import Dataset
    from costar_cli.panel.report import DataReport

__all__ = ["run_export", "run_report"]

TERMINAL = Path("-")
MAKE = "a data set comes from `costar simulate` or `costar ingest`"


def run_report(out: Output, file: Path, target: Path, *, overwrite: bool) -> dict[str, Any]:
    """Describe a data set in tables on stdout (`-`), or in a page; return the numbers."""
    if target != TERMINAL and target.exists() and not overwrite:
        raise MismatchError("the file exists", where=str(target), fix="add --overwrite, or choose another name")
    from costar_cli.panel.report import describe_dataset

    report = describe_dataset(_dataset(file, queries=True))
    if target == TERMINAL:
        _show(out, report)
    else:
        from costar_cli.artifact import write_bytes
        from costar_cli.figures.data_report import report_page

        write_bytes(target, report_page(report).encode())
        out.wrote("report", target, kind="html")
    return report.to_json()


def run_export(out: Output, file: Path, folder: Path, form: FormatName, *, overwrite: bool) -> list[str]:
    """Write a data set as tables with a schema that reads them back; return the paths."""
    from costar_cli.datasets.table.export import export_dataset

    paths = export_dataset(_dataset(file, queries=True), folder, form, overwrite=overwrite)
    for path in paths:
        out.wrote(path.stem, path, kind=path.suffix.removeprefix("."))
    known = [path for path in paths if path.stem == "queries"]
    schema = next(path for path in paths if path.stem == "schema")
    out.next(next_command({}, "ingest table", str(paths[0]), schema=schema, queries=known))
    return [str(path) for path in paths]


def _dataset(file: Path, *, queries: bool) -> "Dataset":
    from costar_cli.artifact import read_header
    from costar_cli.artifact.spec import a_kind
    from costar_cli.panel.store import read_dataset

    header = read_header(file)
    if header.kind != "dataset":
        raise ArtifactError(f"this file holds {a_kind(header.kind)}, not a dataset", where=str(file), fix=MAKE)
    return read_dataset(file, queries=queries, truth=False)


def _show(out: Output, report: "DataReport") -> None:
    from costar_cli.figures.data_report import report_tables

    for i, table in enumerate(report_tables(report)):
        out.text(*[""] * bool(i))
        out.table(table.headers, table.rows, title=table.title)
    if report.findings:
        out.text("")
        rows = [[finding.severity, str(finding)] for finding in report.findings]
        out.table(["findings", ""], rows)
