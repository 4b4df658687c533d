"""`costar explore`: a page in the browser, on this machine alone, that asks what `whatif` and `search` ask."""

import os
import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from costar_cli.api.outputs import check_outputs, check_page
from costar_cli.cli import options
from costar_cli.cli.models import ModelChoice, load_models, name_models
from costar_cli.cli.options import FILES, expanded
from costar_cli.cli.session import Session, open_session, read_kind
from costar_cli.cli.whatif import files_read
from costar_cli.cli.workspace import DEFAULT_WORKSPACE
from costar_cli.errors import CostarError, UsageError

if TYPE_CHECKING:
    from costar_cli.cli.exploring.explorer import Explorer
    from costar_cli.cli.exploring.server import ExploreServer
    from costar_cli.cli.session import Flags
    from costar_cli.methods.base import FittedModel

MOST_SUBJECTS: Final = 50  # of a page that stands alone


@dataclass(frozen=True, kw_only=True)
class PageFlags:
    """What the page shows first, and where it is."""

    subject: Annotated[
        list[str] | None,
        typer.Option("--subject", "-s", help="Subject to begin with; with --freeze may be repeated (default: one)"),
    ] = None
    port: Annotated[int | None, typer.Option("--port", help="Port of 127.0.0.1 (default: a free one)")] = None
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, and open no browser")] = False
    freeze: Annotated[
        Path | None,
        typer.Option(
            "--freeze", help="Page to write instead, with answers to a grid of plans: it needs no server",
            rich_help_panel=FILES,
        ),
    ] = None  # fmt: skip
    overwrite: options.OverwriteFlag = False

    def check(self, session: Session, data: Path, models: list[Path]) -> None:
        """See, before any work, that the options go together and that the page can be written.

        Raises:
            UsageError: options that do not go together, or a file of another kind.
            MismatchError: the file is read, or exists and may not be replaced.
            StorageError: its folder does not exist, or it is no regular file.
        """
        count = len(self.subject or ())
        if self.freeze is not None and self.port is not None:
            raise UsageError("a page that is written has no port", where="--port", fix="leave out --port or --freeze")
        if count > (MOST_SUBJECTS if self.freeze is not None else 1):
            fix = f"name at most {MOST_SUBJECTS}" if self.freeze is not None else "give one, or --freeze a page"
            raise UsageError(f"{count} subjects are too many to begin with", where="--subject", fix=fix)
        check_outputs([("--freeze", self.freeze)], read=files_read(session, data, models), overwrite=self.overwrite)
        check_page(self.freeze, flag="--freeze")


@expanded
def explore(
    ctx: typer.Context,
    page: PageFlags,
    workspace: options.WorkspaceOpt = DEFAULT_WORKSPACE,
    data: options.DataOpt = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            help="Model to ask (default: all of the workspace); may be repeated",
            rich_help_panel=FILES,
        ),
    ] = None,
    config: options.ConfigFileOpt = None,
    device: options.DeviceOpt = None,
    threads: options.ThreadsOpt = None,
    json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Compare treatment plans for a subject in the browser: click a calendar, and see outcomes, bands and support."""
    from costar_cli.config.models import RuntimeConfig

    flags: Flags = {RuntimeConfig: {"device": device, "threads": threads}}
    session = open_session(ctx, flags, workspace=workspace, json=json, quiet=quiet, config=config)
    place, source = session.workspace, data or session.workspace.data
    page.check(session, source, place.named(model or []))
    session.read("dataset", source)
    from costar_cli.cli.exploring.explorer import Explorer
    from costar_cli.cli.exploring.server import ExploreServer

    with ExitStack() as closing:
        # A port that is taken is said before anything is loaded.
        server = None if page.freeze is not None else closing.enter_context(ExploreServer(page.port or 0))
        dataset = session.load_dataset(source, queries=False, truth=False)
        models = _models(session, source, place.named(model or []))
        first = [str(dataset.panel_of(dataset.find_subject(name)).names[0]) for name in page.subject or ()]
        carried = [name for name in ("workspace", "config") if name in session.given]
        words = [word for name in carried for word in (f"--{name}", session.given[name])]
        words += [] if data is None else ["--data", str(data)]
        explorer = Explorer(dataset=dataset, models=models, words=words, first=first)
        if server is not None:
            _serve(session, explorer, server, opens=not page.no_browser)
        elif page.freeze is not None:
            from costar_cli.files import write_bytes
            from costar_cli.report.pages.explore import explore_page

            frozen = explorer.freeze()
            text, _ = explore_page({"about": explorer.describe(), "frozen": frozen}, served=False)
            write_bytes(page.freeze, text.encode())
            session.out.wrote("page", page.freeze, kind="html")
            subjects, plans = len(frozen), max(len(answer["plans"]) for answer in frozen.values())
            session.out.text(f"{subjects} subject{'s' * (subjects != 1)} under {plans:,} plans each")
            shown = {"models": [next(iter(models))], "subjects": subjects, "plans": plans}
            session.out.done({"address": None, "port": None, **shown})


def _models(session: Session, data: Path, named: list[Path]) -> "dict[str, FittedModel]":
    """Return the models that the page asks, the workspace's default first; others that do not fit are left out.

    Raises:
        ArtifactError: there is no model.
        MismatchError: a model that was named does not fit the data set.
    """
    from costar_cli.data.compatible import require_fitting

    header, paths = read_kind("dataset", data), []
    for path in named or session.workspace.models():
        try:
            require_fitting(header, read_kind("model", path), called=f"model `{path.stem}`")
        except CostarError as error:
            if named:
                raise
            session.out.note(f"`{path.stem}` is left out: {error.problem}")
        else:
            paths.append(path)
    if not named and paths:
        try:
            default = ModelChoice.of(session.workspace).files
        except UsageError:  # several methods, and none of them is the default
            default = ()
        paths.sort(key=lambda path: path not in default)
    of_name = name_models(paths, session.workspace.root)
    headers = {name: session.read("model", path, role=name) for name, path in of_name.items()}
    return load_models(session, headers, of_name)


def _serve(session: Session, explorer: "Explorer", server: "ExploreServer", *, opens: bool) -> None:
    """Serve the page until Ctrl-C."""
    from costar_cli.report.pages.explore import explore_page

    text, policy = explore_page({"about": explorer.describe(), "frozen": None}, served=True)
    out, models, count = session.out, list(explorer.models), len(explorer.places)
    out.text(f"exploring {explorer.dataset.name} at {server.address}")
    out.note(f"{len(models)} model{'s' * (len(models) > 1)}, {count:,} subjects; Ctrl-C ends it")
    out.serve(
        {"address": server.address, "port": server.server_port, "models": models, "subjects": count, "plans": None}
    )
    # a browser that opens no window would take over the terminal
    has_screen = sys.platform in {"darwin", "win32"} or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if opens and not out.json and sys.stdout.isatty() and has_screen:
        import webbrowser

        threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
    out.close()  # no heartbeat: the verb waits, and works on nothing
    server.run(
        text,
        policy,
        {
            "answer": explorer.answer,
            "near": explorer.near,
            "report": explorer.report,
            "search": explorer.search,
            "subjects": explorer.subjects,
        },
    )
