"""One sink for everything that costar says: results on stdout, all else on stderr, one document under `--json`."""

import os
import shutil
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any, TextIO, cast

from costar_cli.diagnostics import Diagnostic, texts_of
from costar_cli.errors import (
    CostarError,
    ExitCode,
    InterruptedRunError,
    TerminatedRunError,
    Termination,
    as_costar_error,
)
from costar_cli.reporting import launched, plain
from costar_cli.reporting.text import columns_of, dump_json, is_interactive, paint, render_table

DOCUMENT_VERSION = "1.0"  # of schemas/documents.json: additions make it 1.1


class Output:
    """What one run of one verb says, to a person or to a script.

    People read tables and `wrote` lines on stdout, and everything else on stderr. Under `--json` stdout holds exactly
    one document, also on failure (stderr still has the message). Under `--quiet` stderr has only warnings and errors.

    Args:
        verb: the verb as typed, for example `simulate tumor`.
        json: print one JSON document instead of text.
        quiet: say nothing but results, warnings and errors.
        show: the topics that the screen has beside its headline, table and alarms; `all` leaves nothing out, as verbs
            without `--show` do.
    """

    def __init__(
        self, verb: str = "", *, json: bool = False, quiet: bool = False, show: Iterable[str] = ("all",)
    ) -> None:
        self.json = json
        self.quiet = quiet
        self.show = frozenset(show)
        self.debug = False
        self.finished = False
        self.diagnostics: list[Diagnostic] = []
        self._held: list[Diagnostic] | None = None  # warnings that a screen shows below its table
        self._unsaid = 0  # warnings for which it has no room
        self._closing: list[Callable[[], None]] = []
        self._document: dict[str, Any] = {"verb": verb, "status": "failed", "workspace": None}
        self._document |= {"inputs": {}, "outputs": {}, "config": {}, "result": None, "next": []}

    def begin(
        self, verb: str, *, json: bool, quiet: bool, show: Iterable[str] = ("all",), workspace: Path | None = None
    ) -> None:
        """Take the verb's own flags, once they are parsed."""
        self.json = self.json or json
        self.quiet = quiet
        self.show = frozenset(show)
        self._document |= {"verb": verb, "workspace": None if workspace is None else str(workspace)}

    def shows(self, topic: str) -> bool:
        """Return whether the screen has a topic of `--show`; a document leaves nothing out."""
        return self.json or not self.show.isdisjoint({topic, "all"})

    def config(self, values: Mapping[str, Any]) -> None:
        """Record the resolved settings and who set them."""
        self._document["config"] = dict(values)

    def read(self, role: str, path: Path, digest: str = "", kind: str = "") -> None:
        """Say which file the verb reads."""
        self._document["inputs"][role] = {"path": str(path), "kind": kind or role, "digest": digest}
        if self.shows("notes"):
            self._aside("read", f"{path}  {_identity(kind or role, digest)}", "dim")

    def wrote(self, role: str, path: Path, digest: str = "", kind: str = "", *, line: bool = True) -> None:
        """Say which file the verb wrote; this is a result. Without a `line` the screen names it elsewhere."""
        self._document["outputs"][role] = {"path": str(path), "kind": kind or role, "digest": digest}
        if line or self.shows("notes"):
            self._result(f"{paint('wrote', 'green', sys.stdout)}  {_line(path)}  {_identity(kind or role, digest)}")

    def up_to_date(self, role: str, path: Path, digest: str = "") -> None:
        """Say that the output is there already, made from the same inputs and settings."""
        self._document["outputs"][role] = {"path": str(path), "kind": role, "digest": digest}
        self._result(f"{paint('up to date', 'green', sys.stdout)}  {_line(path)}  {_identity(role, digest)}")

    def text(self, *lines: str) -> None:
        """Print lines of the result for people; nothing under `--json`."""
        self._result(*(_folded(plain(one), sys.stdout) for line in lines for one in line.split("\n")))

    def _result(self, *lines: str) -> None:
        """Print lines that are made of `plain` texts, painted or not."""
        if not self.json:
            _write(sys.stdout, "".join(f"{line}\n" for line in lines))

    def table(
        self,
        headers: Sequence[str],
        rows: Sequence[Sequence[object]],
        title: str = "",
        *,
        keys: int = 0,
        together: int = 1,
    ) -> None:
        """Print a table of the result for people; nothing under `--json`.

        With `keys`, the number of columns that say what a row is, a table too wide for the terminal is split in blocks,
        where so many columns stay `together`.
        """
        first, *rest = render_table(headers, rows, width=columns_of(sys.stdout), keys=keys, together=together)
        if title:
            self._result(paint(_folded(_line(title), sys.stdout), "bold", sys.stdout))
        # a long text in the last column folds below itself
        last = len(first) - len(headers[-1]) if first.endswith(headers[-1]) else 0
        indent = last if 0 < last <= (columns_of(sys.stdout) or 0) / 2 else 3
        self._result(paint(first, "dim", sys.stdout), *(_folded(line, sys.stdout, indent=indent) for line in rest))

    def next(self, *commands: str) -> None:
        """Suggest what to do next; a screen has room for the first two commands."""
        self._document["next"].extend(commands)
        for command in commands if self.shows("notes") else commands[:2]:
            self._aside("next", f"{command}", "cyan")

    @property
    def warnings(self) -> list[str]:
        """Return the warnings as people read them."""
        return list(texts_of(self.diagnostics, "warning"))

    def say(self, diagnostic: Diagnostic) -> None:
        """Say what a reader of results should know; it is also recorded in the document, and there whole."""
        self.diagnostics.append(diagnostic)
        if diagnostic.severity == "note":
            if self.shows("notes"):
                self.note(str(diagnostic))
        elif self._held is None:
            self._warn(str(diagnostic) if self.shows("notes") else diagnostic.brief)
        else:
            self._held.append(diagnostic)

    def hold(self) -> None:
        """Keep warnings until `release`, so that they stand below the table and not above the screen's end."""
        self._held = None if self.shows("notes") else []

    @property
    def holds(self) -> bool:
        """Return whether a screen is being made, whose warnings stand below its table."""
        return self._held is not None

    def release(self, most: int | None = None, *, stated: Collection[str] = (), words: str = "") -> None:
        """Say the warnings that were kept, each once; `more` counts those beyond `most`, and those of `stated` codes.

        Args:
            most: how many lines of warnings a screen has room for; None for all.
            stated: codes of what the screen says in its own words.
            words: which a text holds that the screen says in its own.
        """
        held, self._held = dict.fromkeys(self._held or ()), None
        held = {one: None for one in held if one.code not in stated and not (words and words in one.text)}
        shown = list(held)[:most]
        for diagnostic in shown:
            self._warn(diagnostic.brief)
        self._unsaid = len(held) - len(shown)

    def _warn(self, text: str) -> None:
        _write(sys.stderr, _folded(f"{paint('warning:', 'yellow', sys.stderr)} {_line(text)}", sys.stderr) + "\n")

    def note(self, message: str) -> None:
        """Say how the work goes, or what was made of what was asked for."""
        self._aside("note", message, "dim")

    def more(self, *topics: str, files: str = "") -> None:
        """Say what `--show` would add to a screen that leaves it out, how many notes, and which files hold the rest."""
        counts = {"note": len({one for one in self.diagnostics if one.severity == "note"}), "warning": self._unsaid}
        count = ", ".join(f"{n} {what}{'s' * (n > 1)}" for what, n in counts.items() if n)
        left = [topic for topic in (*topics, "notes") if not self.shows(topic) and (topic != "notes" or count)]
        notes = f" ({count})" if "notes" in left else ""
        shown = [f"--show {'|'.join([*left, 'all'])}{notes}"] if left else []
        if shown or files:
            self._aside("details", "; ".join([*shown, *([files] if files else [])]), "dim")

    def progress(self, message: str) -> None:
        """Say how far the work is; under `--json`, too, so that a log shows that it goes on."""
        if not self.quiet:
            _write(sys.stderr, f"{paint('progress', 'dim', sys.stderr)}  {_line(message)}\n")

    def at_close(self, stop: Callable[[], None]) -> None:
        """Have something stopped when the run ends, however it ends."""
        self._closing.append(stop)

    def close(self) -> None:
        """Stop what runs beside the verb."""
        while self._closing:
            self._closing.pop()()

    def keep(self, result: object) -> None:
        """Record what was found so far: it is in the document even if the verb ends with an error."""
        self._document["result"] = result

    def done(self, result: object, *, status: str = "done") -> None:
        """End the verb: under `--json`, print the document."""
        self._finish(status, result=result)

    def serve(self, result: object) -> None:
        """Under `--json`, print the document of a verb that goes on until it is stopped: nothing follows it."""
        self._print("serving", result=result)

    def fail(self, error: CostarError, *, verb: str = "", status: str = "failed") -> None:
        """End the verb with an error: message on stderr, or the document on stdout."""
        self.release()
        self._document["verb"] = self._document["verb"] or verb
        _write(sys.stderr, "".join(f"{line}\n" for line in _explain(error)))
        self._finish(status, error=error.to_json())

    def _finish(self, status: str, *, result: object = None, error: Mapping[str, object] | None = None) -> None:
        if self.holds:  # of a screen that ended early
            self.release()
        Termination.tell()
        self._print(status, result=result, error=error)
        Termination.told(ExitCode.OK if error is None else cast(int, error["exit_code"]))

    def _print(self, status: str, *, result: object = None, error: Mapping[str, object] | None = None) -> None:
        if self.json and not self.finished:
            name = "error" if error else str(self._document["verb"]).replace(" ", ".")
            schema = {"name": f"costar.{name}", "version": DOCUMENT_VERSION}
            document = {"schema": schema, **self._document, "status": status, "warnings": self.warnings}
            document |= {"diagnostics": [one.to_json() for one in dict.fromkeys(self.diagnostics)], "error": error}
            if result is not None:
                document["result"] = result
            _write(sys.stdout, dump_json(document) + "\n")
        self.finished = True

    def _aside(self, label: str, message: str, style: str) -> None:
        if not self.quiet and not self.json:
            line = f"{paint(label, style, sys.stderr)}  {_line(message)}"
            _write(sys.stderr, _folded(line, sys.stderr, " \\" if label == "next" else "") + "\n")


def tell_failure(out: Output, error: CostarError, verb: str = "") -> int:
    """Report the error and return its exit code; if even that cannot be written, the exit code still says it."""
    stopped = isinstance(error, InterruptedRunError | TerminatedRunError)
    if rank := launched("RANK"):
        if stopped:  # as the first one is, which says so
            return int(error.exit_code)
        out.json = False  # the document is the first process's
        _write(sys.stderr, f"process {rank}: ")
    if out.debug:
        with aside():
            traceback.print_exc()
    try:
        out.fail(error, verb=verb, status="interrupted" if stopped else "failed")
    except OSError as failure:
        abandon(sys.stdout)
        return int(as_costar_error(failure).exit_code)
    return int(error.exit_code)


def _line(text: object) -> str:
    """Return text as one line: a name with a line end in it would look like another message."""
    return plain(text).replace("\n", "\\n")


def _folded(line: str, stream: TextIO, mark: str = "", indent: int = 3) -> str:
    """Return a line folded between words where a terminal would cut it within one; in a pipe it stays one line.

    With a `mark` at the end of each line but the last, a command that is copied still runs.
    """
    width = shutil.get_terminal_size().columns if is_interactive(stream) else 0
    if len(line) <= width or not width:  # codes of colour count as letters: folded a little early at worst
        return line
    if mark and "'" in line:  # within quotes no mark continues a command
        return line
    width -= len(mark)
    lines = wrap(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return f"{mark}\n".join(lines)


def _identity(kind: str, digest: str) -> str:
    return f"({kind} {digest[:8]})" if digest else f"({kind})"


def _explain(error: CostarError) -> list[str]:
    lines = [_folded(f"{paint('error:', 'red', sys.stderr)} {_line(error.problem)}", sys.stderr)]
    lines += [_folded(f"  - {_line(detail)}", sys.stderr) for detail in error.details]
    if error.where:
        lines.append(f"  where: {_line(error.where)}")
    if error.fix:
        lines.append(_folded(f"  fix:   {_line(error.fix)}", sys.stderr))
    return lines


@contextmanager
def aside() -> Iterator[None]:
    """Let what is written to stderr within the context be lost where it cannot be: results alone must arrive."""
    try:
        yield
        sys.stderr.flush()
    except OSError:
        abandon(sys.stderr)


def abandon(stream: TextIO) -> None:
    """Let what a stream still holds, and all that follows, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write(stream: TextIO, text: str) -> None:
    """Write and flush; a reader that has left (`| head`) is no error, the work goes on."""
    if stream is sys.stderr:
        with aside():
            stream.write(text)
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        abandon(stream)
