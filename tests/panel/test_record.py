"""What a model's file says: it comes back as it was written, and damage is one error that names all of it."""

import json
from dataclasses import replace

import pytest

from costar_cli.data import End
from costar_cli.data.record import ModelRecord, StageRecord, ValidationRecord
from costar_cli.errors import ArtifactError
from costar_cli.files import Artifact
from tests.whatif.whatif_worlds import TUMOR

RECORD = ModelRecord(
    method="crn",
    schema=TUMOR,
    horizon=6,
    trained_on={"source/train": 40},
    stages=(
        StageRecord(name="encoder", history={"train_loss": [[1.0]]}, steps=(3,), ended_by=("budget",), passes=2.0),
    ),
    validation=ValidationRecord(score=0.5, last_value=0.7, windows=9, horizon=6, members=(0.5,)),
    warnings=("in doubt",),
    relative=(True,),
    facts={"window": 4},
)


def stored(record: ModelRecord) -> dict[str, object]:
    found: dict[str, object] = json.loads(json.dumps(record.to_meta()))
    return found


def test_a_record_comes_back_from_its_file_with_what_its_method_added() -> None:
    assert ModelRecord.read(stored(RECORD)) == RECORD
    assert stored(RECORD)["window"] == 4
    assert stored(RECORD)["validation"] == {
        "score": 0.5, "last_value": 0.7, "windows": 9, "horizon": 6, "members": [0.5],
    }  # fmt: skip


def test_what_is_not_known_is_not_written_and_null_is_not_known() -> None:
    assert ModelRecord(method="crn").to_meta() == {"method": "crn"}
    assert ModelRecord.read({"method": "crn", "support": None}) == ModelRecord(method="crn")
    assert "stages" in replace(RECORD, stages=()).to_meta()  # a closed form has none, which is a fact


def test_damage_is_one_error_that_names_all_of_it_and_lenient_readers_leave_it_out() -> None:
    meta = {**stored(RECORD), "warnings": "x", "stages": [{"steps": ["many"]}]}
    with pytest.raises(ArtifactError, match="incomplete or damaged") as caught:
        ModelRecord.of(Artifact("model", {}, meta))
    assert all(name in caught.value.where for name in ("warnings", "stages"))
    lenient = ModelRecord.read(meta, lenient=True)
    assert lenient == replace(RECORD, warnings=(), stages=None)


def test_no_model_predicts_events_alone() -> None:
    """A data set may have no outcome, a model's file may not say so."""
    schema = TUMOR.model_copy(update={"outcomes": (), "ends": (End(name="death"),)})
    meta = stored(replace(RECORD, schema=schema))
    with pytest.raises(ArtifactError, match="incomplete or damaged") as caught:
        ModelRecord.of(Artifact("model", {}, meta))
    assert "schema.outcomes: a model has at least one" in caught.value.where
    assert ModelRecord.read(meta, lenient=True) == replace(RECORD, schema=None)
