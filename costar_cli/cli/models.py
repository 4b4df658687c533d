"""Which models answer: those that are named, or the workspace's default; and loading them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from costar_cli.cli.session import MADE_BY, Session, read_kind
from costar_cli.cli.workspace import Workspace
from costar_cli.config.choices import DomainName
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import ArtifactError, UsageError
from costar_cli.methods.registry import METHODS, REFERENCE

if TYPE_CHECKING:
    from costar_cli.files import Artifact
    from costar_cli.methods.base import FittedModel

MOST_NAMED: Final = 6  # other models in a note


@dataclass(frozen=True)
class ModelChoice:
    """The models that were named; or else the files of one method of the workspace, and those of its others."""

    named: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()

    @classmethod
    def of(cls, workspace: Workspace, named: Sequence[Path] = ()) -> Self:
        """Return the models named, else COSTAR's of the workspace, else its stack's, else its only method's.

        Raises:
            UsageError: none is named, and the workspace has several methods, but neither COSTAR nor a stack.
        """
        if named:
            return cls(tuple(named))
        methods = {  # as names tell: `model-crn-erm-target.h5` is of `crn-erm`
            path: path.stem.removesuffix("-target").removesuffix("-scratch").removeprefix("model").lstrip("-")
            or REFERENCE
            for path in workspace.models()
        }
        there, preferred = set(methods.values()), (REFERENCE, METHODS.combining.name)
        method = next((name for name in preferred if name in there), None)
        if method is None and len(there) > 1:
            raise UsageError(
                f"the workspace has models of several methods, and no default: {_listed(methods, len(methods))}",
                where=str(workspace.root),
                fix=f"name one, for example `--model {next(iter(methods))}`",
            )
        files = tuple(path for path in methods if method in (None, methods[path]))
        return cls((), files, tuple(path for path in methods if path not in files))

    def fitting(self, workspace: Workspace, data: Path) -> Self:
        """Return the choice, and see by headers, before any other work, that these models read this data set.

        Which file of several domains' will be asked is not known yet.

        Raises:
            ArtifactError: a file is missing, or is not what it should be.
            MismatchError: a model is of other variables, treatments or units than the data set's.
        """
        certain = self.named or (self.files if len(self.files) == 1 else ())
        if not certain:
            return self
        from costar_cli.data.compatible import require_fitting

        header = read_kind("dataset", data)
        for name, path in name_models(certain, workspace.root).items():
            require_fitting(header, read_kind("model", path), called=f"model `{name}`")
        return self

    def load(self, session: Session, domains: Iterable[DomainName]) -> "dict[str, FittedModel]":
        """Return the models for subjects of these domains by name, and say which they are.

        Raises:
            ArtifactError: there is no model, or a file is damaged.
            UsageError: a model is given more than once.
        """
        named = name_models(self.about(session, domains), session.workspace.root)
        headers = {name: session.read("model", path, role=name) for name, path in named.items()}
        return load_models(session, headers, named)

    def about(self, session: Session, domains: Iterable[DomainName]) -> tuple[Path, ...]:
        """Return the models for subjects of these domains, and say in a note which others the workspace has.

        That is the model adapted to their domain, if there is one; the source's where they are of both.
        """
        if self.named:
            return self.named
        asked = set(domains)
        domain = asked.pop() if len(asked) == 1 else "source"
        ranked = sorted(
            self.files,
            key=lambda path: ("scratch" in _words(path), (_words(path)[-1:] == ["target"]) != (domain == "target")),
        )
        if (others := [*ranked[1:], *self.others]) and session.out.shows("notes"):
            session.out.note(f"using {ranked[0].name}; other models: {_listed(others, MOST_NAMED)} (--model)")
        return tuple(ranked[:1])


def to_name(workspace: Workspace, models: Sequence[Path]) -> Sequence[Path] | None:
    """Return these models where a question about them has to name them; None where its default is one of them."""
    try:
        choice = ModelChoice.of(workspace)
    except UsageError:
        return models
    known = {path.resolve() for path in models}
    return None if any(path.resolve() in known for path in choice.files) else models


def _words(path: Path) -> list[str]:
    return path.stem.split("-")[1:]


def _listed(paths: Collection[Path], most: int) -> str:
    names = [path.stem for path in paths]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def name_models(paths: Sequence[Path], workspace: Path) -> dict[str, Path]:
    """Return models by name: the file's name, with its folder where two files are called alike.

    Raises:
        ArtifactError: there is no model.
        UsageError: a model is given more than once.
    """
    if not paths:
        raise ArtifactError("no model found", where=str(workspace), fix=MADE_BY["model"])
    stems = [path.stem for path in paths]
    named = {path.stem if stems.count(path.stem) == 1 else str(path.with_suffix("")): path for path in paths}
    if len(named) < len(paths):
        raise UsageError("a model is given more than once", where="--model", fix="give each model once")
    return named


def load_models(session: Session, headers: dict[str, "Artifact"], named: dict[str, Path]) -> dict[str, "FittedModel"]:
    """Load models onto the device of the settings, by name, and warn of those that record less than today's do."""
    from costar_cli.api.model import device_for
    from costar_cli.config.models import RuntimeConfig
    from costar_cli.data.record import ModelRecord
    from costar_cli.methods import load_model

    records = {name: ModelRecord.of(header) for name, header in headers.items()}
    for name, record in records.items():
        known = {"what its training subjects received": record.support, "its validation error": record.validation}
        missing = [words for words, fact in known.items() if fact is None]
        if missing and record.made_with is None:
            what = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'}"
            session.out.say(Diagnostic.of("older-version", name, missing=what))
    device = device_for(session.settings[RuntimeConfig], records.values())
    loaded = {name: load_model(path, device=device) for name, path in named.items()}
    for name, path in named.items():
        session.require_same(path, loaded[name].digest)
    return loaded
