from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.config.choices import PresetName
from costar_cli.config.models import (
    TOKEN_SETTINGS,
    EncoderConfig,
    EvaluateConfig,
    FinetuneConfig,
    PretrainConfig,
    RuntimeConfig,
)
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.errors import UsageError
from costar_cli.methods.recurrent.settings import CrnConfig, CrnErmConfig, RmsnConfig
from costar_cli.methods.transformers.settings import EdctConfig
from costar_cli.settings.keys import all_keys, all_sections
from costar_cli.settings.presets import EVERY, PRESETS, preset_settings, read_preset
from costar_cli.settings.resolve import resolve

KEYS = {"pretrain.epochs": PretrainConfig, "finetune.epochs": FinetuneConfig, "simulate.tumor.train": TumorConfig}


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def problems(error: UsageError) -> list[str]:
    return list(error.details) or [error.problem]


def test_flags_win_over_environment_over_file_over_preset_over_default(tmp_path: Path) -> None:
    file = write(tmp_path / "c.toml", "[pretrain]\nepochs = 11\nmembers = 12\npatience = 13\n")
    environ = {"COSTAR_PRETRAIN_EPOCHS": "21", "COSTAR_PRETRAIN_MEMBERS": "22"}
    settings = resolve({PretrainConfig: {"epochs": 31}}, preset="quick", file=file, environ=environ)
    config = settings[PretrainConfig]
    assert (config.epochs, config.members, config.patience, config.learning_rate) == (31, 22, 13, 1e-3)
    assert settings[FinetuneConfig].epochs == PRESETS["quick"]["finetune.epochs"]
    assert settings.origins["pretrain.epochs"] == "--epochs"
    assert settings.origins["pretrain.members"] == "COSTAR_PRETRAIN_MEMBERS"
    assert settings.origins["pretrain.patience"] == str(file)
    assert settings.origins["finetune.epochs"] == "preset quick"
    assert "pretrain.learning_rate" not in settings.origins


@pytest.mark.parametrize(
    ("dataset", "epochs", "patience", "validation"),
    [("tumor", 200, 20, 256), ("mimic", 200, 20, 128), ("mimic-factual", 200, 20, 128), ("m5", 20, 5, 128)],
)
def test_the_papers_training_of_costar_is_that_of_its_preset(dataset, epochs, patience, validation) -> None:
    settings = resolve({}, preset="paper", dataset=dataset)
    for config, batch in ((settings[PretrainConfig], 64), (settings[FinetuneConfig], 32)):
        assert (config.epochs, config.patience, config.batch_size) == (epochs, patience, batch)
        assert config.validation_batch_size == validation


@pytest.mark.parametrize("dataset", ["tumor", "mimic", "m5", "my-own"])
def test_quick_trains_in_batches_that_suit_few_subjects(dataset) -> None:
    quick, paper = (resolve({}, preset=preset, dataset=dataset) for preset in ("quick", "paper"))
    for config in (RmsnConfig, CrnConfig, CrnErmConfig, EdctConfig):
        assert quick[config].encoder.batch_size == 16 < paper[config].encoder.batch_size
        assert quick[config].decoder.batch_size == paper[config].decoder.batch_size
    assert quick[FinetuneConfig].batch_size == (4 if dataset == "m5" else 8)


@given(
    name=st.sampled_from(sorted(KEYS)),
    given_at=st.sets(st.sampled_from(["preset", "file", "environment", "flag"])),
)
def test_whichever_sources_speak_the_strongest_one_is_heard(
    name: str, given_at: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    section, _, leaf = name.rpartition(".")
    file = None
    if "file" in given_at:
        file = write(tmp_path_factory.mktemp("config") / "c.toml", f"[{section}]\n{leaf} = 101\n")
    flags = {KEYS[name]: {leaf: 103 if "flag" in given_at else None}}
    environ = {all_keys()[name].env: "102"} if "environment" in given_at else {}
    settings = resolve(flags, preset="quick" if "preset" in given_at else "paper", file=file, environ=environ)
    weakest = PRESETS["quick" if "preset" in given_at else "paper"][name]
    ranks = [("flag", 103), ("environment", 102), ("file", 101)]
    expected = next((value for source, value in ranks if source in given_at), weakest)
    assert getattr(settings[KEYS[name]], leaf) == expected


def test_the_preset_is_the_flag_then_the_file_then_default(tmp_path: Path) -> None:
    file = write(tmp_path / "c.toml", 'preset = "paper"\n')
    assert resolve({}, file=file).preset == "paper"
    assert resolve({}, file=file, preset="quick").preset == "quick"
    assert resolve({}).preset == "default"


def test_the_paper_preset_is_the_papers_protocol() -> None:
    settings = resolve({}, preset="paper")
    tumor, pretrain, finetune = settings[TumorConfig], settings[PretrainConfig], settings[FinetuneConfig]
    assert (tumor.train, tumor.val, tumor.test, tumor.target_train) == (10_000, 1_000, 1_000, 100)
    assert (tumor.gamma, tumor.target_gamma, tumor.steps, tumor.horizon) == (10, 0, 60, 6)
    assert (pretrain.epochs, pretrain.patience, pretrain.members, pretrain.batch_size) == (200, 20, 5, 64)
    assert (finetune.epochs, finetune.patience, finetune.members, finetune.batch_size) == (200, 20, 5, 32)
    assert pretrain.encoder == EncoderConfig(width=24, layers=1, heads=2, dropout=0.1, clip_distance=15)


def test_every_preset_sets_known_keys_to_valid_values() -> None:
    for name, values in PRESETS.items():
        assert set(values) <= set(all_keys())
        settings = resolve({}, preset=name)
        assert all(settings.origins[key] == f"preset {name}" for key in values)


@pytest.mark.parametrize("dataset", sorted({name for file in (EVERY, *PRESETS) for name in read_preset(file)[1]}))
@pytest.mark.parametrize("preset", PRESETS)
def test_what_a_preset_sets_for_a_data_set_are_known_keys_with_valid_values(preset: PresetName, dataset: str) -> None:
    values = preset_settings(preset, dataset)
    assert set(values) <= set(all_keys())
    settings = resolve({}, preset=preset, dataset=dataset)
    assert {key: origin for key, (_, origin) in values.items()}.items() <= settings.origins.items()
    described = settings.describe(all_sections().values())
    assert {key: described[key]["value"] for key in values} == {key: value for key, (value, _) in values.items()}


def test_there_is_a_file_for_each_preset_and_one_that_all_take() -> None:
    folder = files("costar_cli.settings.presets")
    assert {file.name for file in folder.iterdir() if file.name.endswith(".toml")} == {
        f"{name}.toml" for name in (EVERY, *PRESETS)
    }


def test_all_problems_of_all_sources_are_reported_at_once(tmp_path: Path) -> None:
    file = write(
        tmp_path / "c.toml",
        'preset = "quik"\n[pretrain]\nepohcs = 3\nepochs = "6"\n[pretrain.encoder]\nwidth = 25\n[pretrian]\nx = 1\n'
        "[simulate.tumor]\ngamma = nan\n[simulate]\nfoo = 3\n",
    )
    environ = {"COSTAR_PRETRAIN_EPOCH": "4", "COSTAR_PRETRAIN_PATIENCE": "soon"}
    with pytest.raises(UsageError) as caught:
        resolve({PretrainConfig: {"members": 0}, RuntimeConfig: {"threads": 0}}, file=file, environ=environ)
    assert caught.value.problem == "11 settings are not valid"
    assert problems(caught.value) == [
        f"preset = 'quik' ({file}): expected one of `quick`, `default`, `paper`",
        f"pretrain.epohcs ({file}): no such setting, did you mean `epochs`?",
        f"pretrian ({file}): no such section, did you mean `pretrain`?",
        f"simulate.foo ({file}): no such setting",
        "COSTAR_PRETRAIN_EPOCH: no such setting, did you mean `COSTAR_PRETRAIN_EPOCHS`?",
        f"pretrain.epochs = '6' ({file}): expected an integer, at least 1, at most 100000",
        f"simulate.tumor.gamma = nan ({file}): expected a number, at least 0, at most 100",
        "pretrain.patience = 'soon' (COSTAR_PRETRAIN_PATIENCE): expected an integer, at least 1",
        "pretrain.members = 0 (--members): expected an integer, at least 1, at most 1000",
        "runtime.threads = 0 (--threads): expected an integer, at least 1, at most 1024, or nothing",
        f"[pretrain.encoder] ({file}, preset default): width 25 is not a multiple of heads 2",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[pretrain\n", "not TOML"),
        ("[pretrain]\nepochs = true\n", "expected an integer"),
        ("[pretrain]\nepochs = 2.5\n", "expected an integer"),
        ("[pretrain]\nencoder = 3\n", "expected a table"),
        ("pretrain = 3\n", "expected a table"),
        ("[pretrain.epochs]\nx = 1\n", "expected an integer"),
        ("[[pretrain]]\nepochs = 1\n", "expected a table"),
        ("[simulate]\ngamma = 1\n", "no such setting"),
        ("gamma = 1\n", "no such section"),
        ('[runtime]\ndevice = "gpu"\n', "`cpu`"),
    ],
)
def test_files_that_are_wrong_in_shape_are_told_so(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        resolve({}, file=write(tmp_path / "c.toml", text))
    assert problem in " ".join(problems(caught.value))


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_files_that_cannot_be_read_as_text_are_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        resolve({}, file=path)
    assert caught.value.where == str(path)


def test_environment_text_becomes_numbers_switches_and_words() -> None:
    environ = {
        "COSTAR_PRETRAIN_LEARNING_RATE": "1e-2",
        "COSTAR_PRETRAIN_COMPONENTS": "false",
        "COSTAR_PRETRAIN_ENCODER_POOL": "token",
        "COSTAR_PRETRAIN_MAX_CONTRAST": " 64 ",
        "COSTAR_EVALUATE_LEVEL": "",
        "COSTAR_FINETUNE_ENCODER_WIDTH": "36",
    }
    settings = resolve({}, environ=environ)
    config = settings[PretrainConfig]
    assert (config.learning_rate, config.components, config.max_contrast) == (0.01, False, 64)
    assert config.encoder == EncoderConfig(pool="token", inputs="relative")
    assert settings[EvaluateConfig].level == 0.95
    assert settings[FinetuneConfig].encoder == EncoderConfig(width=36)


def test_variables_that_only_look_like_ours_are_warned_about_and_ignored() -> None:
    environ = {"COSTAR_PRETRIAN_EPOCHS": "3", "COSTAR_WORKSPACE": "x", "OTHER": "y"}
    (warning,) = resolve({}, environ=environ).warnings
    assert (warning.code, warning.subject) == ("variable-ignored", "COSTAR_PRETRIAN_EPOCHS")
    assert "did you mean `COSTAR_PRETRAIN_EPOCHS`?" in warning.text


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("COSTAR_FOO", ""),
        ("COSTAR_HOME", ""),
        ("COSTAR_X", ""),
        ("COSTAR_WORKSPCE", "`COSTAR_WORKSPACE`"),
        ("COSTAR_DEBG", "`COSTAR_DEBUG`"),
        ("COSTAR_EVALUTE_LEVEL", "`COSTAR_EVALUATE_LEVEL`"),
        ("COSTAR_EPOCH", "`COSTAR_PRETRAIN_EPOCHS` or `COSTAR_FINETUNE_EPOCHS`"),
        ("COSTAR_EPOCHS", "`COSTAR_PRETRAIN_EPOCHS` or `COSTAR_FINETUNE_EPOCHS`"),
        ("COSTAR_SEED", "`COSTAR_PRETRAIN_SEED`, `COSTAR_FINETUNE_SEED` or `COSTAR_EVALUATE_SEED`"),
        ("COSTAR_TUMOR_GAMA", "`COSTAR_SIMULATE_TUMOR_GAMMA`"),
        ("COSTAR_THREADS", "`COSTAR_RUNTIME_THREADS`"),
    ],
)
def test_only_a_variable_that_is_nearly_one_of_ours_is_offered_as_what_was_meant(name: str, meant: str) -> None:
    [warning] = resolve({}, environ={name: "1"}).warnings
    what = f"did you mean {meant}?" if meant else "`costar settings` lists them"
    assert str(warning) == f"environment variable {name} is not a setting and is ignored; {what}"


@pytest.mark.parametrize(("leaf", "guess"), [("FOO", ""), ("EPOCH", ", did you mean `COSTAR_PRETRAIN_EPOCHS`?")])
def test_within_a_section_only_the_setting_is_compared(leaf: str, guess: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve({}, environ={f"COSTAR_PRETRAIN_{leaf}": "1"})
    assert f"COSTAR_PRETRAIN_{leaf}: no such setting{guess}" in (caught.value.problem, *caught.value.details)


def test_every_setting_has_a_variable_of_its_own_a_meaning_and_a_default_that_it_accepts() -> None:
    keys = all_keys().values()
    assert len({key.env for key in keys}) == len(keys)
    for key in keys:
        assert key.field.description, str(key)
        assert key.check(key.default, text=False) == key.default


def test_configurations_are_immutable_and_every_section_resolves() -> None:
    settings = resolve({})
    for model in all_sections().values():
        with pytest.raises(ValueError, match="frozen"):
            settings[model].seed = 3  # type: ignore[attr-defined]


def test_what_was_chosen_is_told_from_what_a_preset_says() -> None:
    settings = resolve({FinetuneConfig: {"epochs": 3}}, preset="quick", environ={"COSTAR_FINETUNE_SEED": "1"})
    assert settings.is_chosen("finetune.epochs")
    assert settings.is_chosen("finetune.seed")
    assert not settings.is_chosen("finetune.members")
    assert not settings.is_chosen("finetune.patience")
    described = settings.describe([FinetuneConfig])
    assert described["finetune.epochs"] == {"value": 3, "origin": "--epochs"}
    assert described["finetune.encoder.width"] == {"value": None, "origin": "default"}


def test_settings_of_tokens_are_refused_where_the_encoder_has_none() -> None:
    environ = {
        "COSTAR_PRETRAIN_ENCODER_ARCHITECTURE": "ct",
        "COSTAR_PRETRAIN_ENCODER_POOL": "token",
        "COSTAR_PRETRAIN_ENCODER_BLOCKS": "temporal",
    }
    with pytest.raises(UsageError) as error:
        resolve({}, environ=environ)
    assert "[pretrain.encoder]" in error.value.problem
    assert "`pool = token` and `blocks = temporal` would change nothing with `architecture = ct`" in error.value.problem
    assert "leave them out, or choose `architecture = costar`" in error.value.problem
    assert resolve({}, environ=environ | {"COSTAR_PRETRAIN_ENCODER_ARCHITECTURE": "costar"})
    defaults = {name: EncoderConfig.model_fields[name].default for name in TOKEN_SETTINGS}
    assert EncoderConfig(architecture="vt", **defaults) == EncoderConfig(architecture="vt")
