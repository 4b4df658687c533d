"""The body of `costar inspect MODEL --report`: the model's card, from its file and what lies beside it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costar_cli.api.outputs import check_page, check_places
from costar_cli.cli.dataset import TERMINAL
from costar_cli.errors import ArtifactError, CostarError, UsageError
from costar_cli.reporting.output import Output

if TYPE_CHECKING:
    from costar_cli.files import Artifact

__all__ = ["run_card"]


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
    from costar_cli.files import describe, write_bytes
    from costar_cli.report.pages.card import model_card

    content = describe(file)
    data, evaluations = None, {}
    for path, header in _beside(file):
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


def _beside(file: Path) -> "Iterator[tuple[Path, Artifact]]":
    """Yield the artifacts in the folder of a file, as far as they can be read."""
    from costar_cli.files import read_header

    for path in sorted(file.parent.glob("*.h5")):
        try:
            yield path, read_header(path)
        except (CostarError, OSError):
            continue
