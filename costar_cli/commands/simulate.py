"""`costar simulate`: make a cohort whose counterfactual outcomes are known."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.models import OptionInfo

from costar_cli.commands.options import (
    ConfigFileOpt,
    JsonFlag,
    OutOpt,
    OverwriteFlag,
    PresetOpt,
    QuietFlag,
    SeedOpt,
    WorkspaceOpt,
)
from costar_cli.commands.session import Session, open_session
from costar_cli.config.choices import PlansName
from costar_cli.errors import UsageError
from costar_cli.workspace import DEFAULT_WORKSPACE

if TYPE_CHECKING:
    from costar_cli.commands.session import Flags
    from costar_cli.panel import Dataset, Part

__all__ = ["simulate"]

COHORT = "Cohort"

simulate = typer.Typer(help="Make a cohort whose counterfactual outcomes are known", pretty_exceptions_enable=False)


def _cohort(flag: str, text: str) -> OptionInfo:
    option: OptionInfo = typer.Option(flag, help=text, rich_help_panel=COHORT)
    return option


@simulate.callback(invoke_without_command=True)
def which(ctx: typer.Context) -> None:
    """Make a cohort whose counterfactual outcomes are known."""
    if ctx.invoked_subcommand is None:
        raise UsageError("say what to simulate", where="`costar simulate`", fix="`costar simulate tumor`")


@simulate.command()
def tumor(
    ctx: typer.Context,
    gamma: Annotated[float | None, _cohort("--gamma", "Confounding strength of the source's policy")] = None,
    target_gamma: Annotated[float | None, _cohort("--target-gamma", "The same for the target's policy")] = None,
    train: Annotated[int | None, _cohort("--train", "Source patients to train on")] = None,
    val: Annotated[int | None, _cohort("--val", "Source patients to select on")] = None,
    test: Annotated[int | None, _cohort("--test", "Source patients to test on")] = None,
    target_train: Annotated[int | None, _cohort("--target-train", "Target patients for few-shot training")] = None,
    target_val: Annotated[int | None, _cohort("--target-val", "Target patients to select on in few-shot")] = None,
    target_test: Annotated[int | None, _cohort("--target-test", "Target patients to test on")] = None,
    steps: Annotated[int | None, _cohort("--steps", "Days simulated per patient")] = None,
    horizon: Annotated[int | None, _cohort("--horizon", "Days predicted from an origin")] = None,
    plans: Annotated[PlansName | None, _cohort("--plans", "Treatment sequences of the test queries")] = None,
    paired: Annotated[
        bool | None,
        typer.Option("--paired/--unpaired", help="Source and target share patients and noise", rich_help_panel=COHORT),
    ] = None,
    seed: SeedOpt = None,
    preset: PresetOpt = None,
    config: ConfigFileOpt = None,
    out: OutOpt = None,
    overwrite: OverwriteFlag = False,
    workspace: WorkspaceOpt = DEFAULT_WORKSPACE,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Simulate tumour growth under chemotherapy and radiotherapy, with counterfactual test sets."""
    from costar_cli.config.models import TumorConfig

    sizes = {"train": train, "val": val, "test": test}
    sizes |= {"target_train": target_train, "target_val": target_val, "target_test": target_test}
    shape = {"gamma": gamma, "target_gamma": target_gamma, "steps": steps, "horizon": horizon}
    flags: Flags = {TumorConfig: {**shape, **sizes, "plans": plans, "paired": paired, "seed": seed}}
    session = open_session(ctx, flags, workspace=workspace, json=json, quiet=quiet, preset=preset, config=config)
    _simulate_tumor(session, path=out or session.workspace.data, overwrite=overwrite)


def _simulate_tumor(session: Session, *, path: Path, overwrite: bool) -> None:
    from costar_cli.config.models import TumorConfig

    config = session.settings[TumorConfig]
    step = session.step("dataset", path, parents={}, config=config.model_dump(mode="json"))
    with session.writing(path):
        current = step.find(overwrite=overwrite)
        from costar_cli.panel.store import read_dataset, write_dataset
        from costar_cli.panel.tumor import simulate_tumor

        if current:
            session.out.up_to_date("dataset", path, current.digest)
            dataset = read_dataset(path, truth=False)
        else:
            dataset = simulate_tumor(config, session.reporter)
            written = write_dataset(path, dataset, fingerprint=step.fingerprint, overwrite=overwrite)
            session.out.wrote("dataset", path, written.digest)
    parts = [_count(dataset, part) for part in dataset.panels]
    session.out.table(list(parts[0]), [list(part.values()) for part in parts])
    session.out.next("costar pretrain")
    session.out.done({"name": dataset.name, "parts": parts}, status="up_to_date" if current else "done")


def _count(dataset: "Dataset", part: "Part") -> dict[str, object]:
    panel = dataset.panels[part]
    queries = dataset.queries.get(part, {})
    asked = {name: len(queries[name]) if name in queries else None for name in ("one_step", "sequence")}
    return {"part": str(part), "subjects": panel.n_subjects, "steps": int(panel.length.sum()), **asked}
