"""What every verb that makes a data set shares: build it or see that it is up to date, store it, count it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costar_cli.commands.session import Session

if TYPE_CHECKING:
    from costar_cli.panel import Dataset, Part

__all__ = ["make_dataset"]


def make_dataset(
    session: Session,
    path: Path,
    build: "Callable[[], Dataset]",
    *,
    config: Mapping[str, Any],
    overwrite: bool,
    parents: Mapping[str, str] | None = None,
) -> None:
    """Make a data set, or see that it is up to date; print what each part holds, and end the verb.

    Args:
        session: the run.
        path: file to write.
        build: makes the data set; called only if it is to be made.
        config: settings that make this data set this one.
        overwrite: replace a file made from something else.
        parents: digests of the input files, by role, where there are any.
    """
    step = session.step("dataset", path, parents=parents or {}, config=config)
    with session.writing(path):
        current = step.find(overwrite=overwrite)
        from costar_cli.panel.store import read_dataset, write_dataset

        if current:
            session.out.up_to_date("dataset", path, current.digest)
            dataset = read_dataset(path, truth=False)
        else:
            dataset = build()
            written = write_dataset(path, dataset, fingerprint=step.fingerprint, overwrite=overwrite)
            session.out.wrote("dataset", path, written.digest)
    names = list(dict.fromkeys(name for asked in dataset.queries.values() for name in asked))
    parts = [_count(dataset, part, names) for part in dataset.panels]
    session.out.table(list(parts[0]), [list(part.values()) for part in parts])
    session.out.next("costar pretrain")
    session.out.done({"name": dataset.name, "parts": parts}, status="up_to_date" if current else "done")


def _count(dataset: "Dataset", part: "Part", names: list[str]) -> dict[str, object]:
    panel = dataset.panels[part]
    queries = dataset.queries.get(part, {})
    asked = {name: len(queries[name]) if name in queries else None for name in names}
    return {"part": str(part), "subjects": panel.n_subjects, "steps": int(panel.length.sum()), **asked}
