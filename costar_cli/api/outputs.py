"""Which files may be written: none that is read or behind what is, no two alike, none that may not be replaced."""

import errno
from collections.abc import Iterable, Mapping
from contextlib import suppress
from os.path import lexists
from pathlib import Path
from types import MappingProxyType
from typing import Final

from costar_cli.errors import CostarError, MismatchError, StorageError, UsageError, cut, storage_error

Files = Iterable[tuple[str, Path | None]]
"""Files by the flag that names an output, or by what an input is, such as `plan`; None where there is none."""
PAGES: Final = (".html", ".htm")
NO_ARTIFACTS: Final = (*PAGES, ".csv", ".json", ".md", ".parquet", ".pdf", ".png", ".svg", ".tex", ".toml", ".txt")
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def check_outputs(
    outputs: Files,
    *,
    read: Files,
    overwrite: bool,
    held: Mapping[str, str] = NOTHING,
    permit: str = "--overwrite",
) -> None:
    """See, before any work, that files can be written.

    Args:
        outputs: the files, by flag or argument.
        read: what is read; none of it is ever replaced.
        overwrite: other files may be.
        held: what was read wherever it is, by digest.
        permit: what lets other files be replaced, as it is written.

    Raises:
        StorageError: a folder does not exist, or an output is no regular file.
        MismatchError: a file is read, or exists and may not be replaced.
        UsageError: two outputs have the same name.
    """
    files = [(flag, path) for flag, path in outputs if path is not None]
    for flag, path in files:
        check_folder(flag, path)
    check_places(files, read=read, held=held)
    for flag, path in files:
        if lexists(path) and not overwrite:
            raise MismatchError(f"`{path}` exists", where=flag, fix=f"add {permit} to replace it, or choose another")


def check_folder(flag: str, path: Path) -> None:
    """See that an output's folder exists.

    Raises:
        StorageError: it does not.
    """
    if not path.parent.is_dir():
        raise StorageError(f"there is no folder `{path.parent}`", where=flag, fix=f"`mkdir -p {path.parent}`")


def check_places(outputs: Files, *, read: Files, held: Mapping[str, str] = NOTHING) -> None:
    """See that outputs are regular files, if they exist, that none is read or made what is, and no two are one.

    Raises:
        StorageError: an output is a folder or a device, or its name is too long.
        MismatchError: an output is read, or what is read was made from it.
        UsageError: two outputs have the same name, or one is standard output, or is called like an option.
    """
    files = [(flag, path) for flag, path in outputs if path is not None]
    for flag, path in files:
        try:
            path.lstat()
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                found = storage_error(error, path)
                raise StorageError(found.problem, where=f"{flag} {cut(str(path), 60)}", fix=found.fix) from None
    kept = {path.resolve(): what for what, path in read if path is not None and str(path) != "-"}
    behind: dict[str, str] = {}  # what was read, or made what is, by digest
    if any(path.is_file() for _, path in files):
        from costar_cli.files import read_header

        behind |= held
        for path, what in kept.items():
            with suppress(CostarError, OSError):  # what is wrong with an artifact is said where it is read
                parents = named(read_header(path).parents)
                behind |= {digest: f"{name} behind the {what}" for digest, name in parents.items()}
    taken: dict[Path, str] = {}
    for flag, path in files:
        if str(path) == "-":
            fix = "give the name of a file; `--json` prints what was found"
            raise UsageError("nothing is written to standard output", where=f"{flag} -", fix=fix)
        if str(path).startswith("-"):  # the parser of options takes whatever follows one that wants a value
            fix = f"give {flag} a name, and `{path}` after it"
            raise UsageError(f"`{path}` is no name of an output, but looks like an option", where=flag, fix=fix)
        place = path.resolve()
        if place in kept:
            problem = f"`{path}` is the {kept[place]} that is read"
            raise MismatchError(problem, where=flag, fix="choose another name")
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "no regular file"
            raise StorageError(f"`{path}` is {what}", where=flag, fix="choose another name")
        if behind and path.is_file() and (made := behind.get(digest_of(path))):
            raise MismatchError(f"`{path}` is the {made} that is read", where=flag, fix="choose another name")
        if place in taken:
            both = f"both {taken[place]} and {flag} write" if flag != taken[place] else f"{flag} twice writes"
            raise UsageError(f"{both} `{path}`", where=flag, fix="choose another name for one of them")
        taken[place] = flag


def check_page(path: Path | None, *, flag: str) -> None:
    """See that the ending of a report's name says that it is a page.

    Raises:
        UsageError: it does not.
    """
    if path is not None and path.suffix.lower() not in PAGES:
        problem = f"a report is an HTML page, not `{path.name}`"
        raise UsageError(problem, where=flag, fix=f"end the name in {PAGES[0]}")


def check_artifact_name(path: Path | None, *, flag: str = "--out") -> None:
    """See that the ending of an artifact's name says nothing else, such as a table's.

    Raises:
        UsageError: it does.
    """
    if path is not None and path.suffix.lower() in NO_ARTIFACTS:
        problem = f"what is written is an artifact, HDF5, not `{path.name}`"
        raise UsageError(problem, where=flag, fix="end the name in .h5")


def named(parents: Mapping[str, str]) -> dict[str, str]:
    """Return what to call each parent, by its digest, such as `data set`; `parents` are the digests by role."""
    kinds = {digest: role.partition("/")[0] for role, digest in parents.items()}
    return {digest: "data set" if kind == "dataset" else kind for digest, kind in kinds.items()}


def digest_of(path: Path) -> str:
    """Return the digest by which an artifact made from a file knows it: that of its content, of a table its bytes'."""
    from costar_cli.files import file_sha256, read_header

    try:
        return read_header(path).digest
    except CostarError:
        return file_sha256(path)
