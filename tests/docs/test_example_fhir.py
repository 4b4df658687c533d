"""The views of examples/fhir make a log of events of FHIR resources, which becomes a data set by the schema there."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli import read_table
from tests.cli.cli_world import REPOSITORY

FOLDER = REPOSITORY / "examples" / "fhir"
EFFECT = -3.0  # of a unit of insulin, on the glucose of the next morning
LOINC, RXNORM = "http://loinc.org", "http://www.nlm.nih.gov/research/umls/rxnorm"


def evaluated(path: str, resource: dict[str, Any]) -> Any:
    """Evaluate the few functions of FHIRPath that the views use, on one resource."""
    found: list[Any] = [resource]
    # `value.ofType(Quantity)` is the member `valueQuantity` of JSON
    plain = re.sub(r"(\w+)\.ofType\((\w)(\w*)\)", lambda of: f"{of[1]}{of[2].upper()}{of[3]}", path)
    for part in re.findall(r"[^.(]+\([^)]*\)|[^.()]+", plain):
        name, _, inside = part.rstrip(")").partition("(")
        if name == "first":
            found = found[:1]
        elif name == "getReferenceKey":
            found = [one["reference"].removeprefix(f"{inside}/") for one in found]
        elif name == "where":
            key, _, wanted = inside.partition(" = ")
            found = [one for one in found if one[key] == wanted.strip("'")]
        else:
            members = [one.get(name) for one in found]
            found = [one for value in members for one in (value if isinstance(value, list) else [value])]
            found = [one for one in found if one is not None]
    return found[0] if found else None


def rows_of(view: dict[str, Any], resources: list[dict[str, Any]]) -> pl.DataFrame:
    """Return the flat table of a view."""
    columns = view["select"][0]["column"]
    conditions = [re.fullmatch(r"(\w+) != '([\w-]+)'", where["path"]) for where in view["where"]]
    assert all(conditions)
    kept = [
        one for one in resources
        if one["resourceType"] == view["resource"] and all(one[c[1]] != c[2] for c in conditions if c)
    ]  # fmt: skip
    made = [{column["name"]: evaluated(column["path"], one) for column in columns} for one in kept]
    return pl.DataFrame(made, infer_schema_length=None)


def make_resources(patients: int = 30, days: int = 8) -> list[dict[str, Any]]:
    """Return resources of patients whose glucose reacts to insulin."""
    rng, resources = np.random.default_rng(3), []
    for who in range(patients):
        glucose, start = 200.0, datetime(2024, 3, 1, 7, tzinfo=UTC) + timedelta(days=int(rng.integers(40)))
        for day in range(days):
            at = start + timedelta(days=day)
            shared = {"subject": {"reference": f"Patient/p{who}"}, "effectiveDateTime": at.isoformat()}
            for code, value, unit in (("2345-7", glucose, "mg/dL"), ("2823-3", 4 + rng.random(), "mmol/L")):
                resources.append(shared | {
                    "resourceType": "Observation", "status": "final",
                    "code": {"coding": [{"system": "urn:local", "code": "x"}, {"system": LOINC, "code": code}]},
                    "valueQuantity": {"value": round(float(value), 3), "unit": unit, "code": unit},
                })  # fmt: skip
            units = int(rng.choice([0, 5, 10]))
            given = {"resourceType": "MedicationAdministration", "status": "completed" if units else "not-done",
                     "effectiveDateTime": (at + timedelta(hours=1)).isoformat(),
                     "medicationCodeableConcept": {"coding": [{"system": RXNORM, "code": "5856"}]},
                     "dosage": {"dose": {"value": units or 99, "code": "[iU]"}}}  # fmt: skip
            resources.append(shared | given)
            glucose = 200 + EFFECT * units + rng.standard_normal()
    resources.append(resources[0] | {"status": "entered-in-error", "valueQuantity": {"value": 9999.0, "code": "mg/dL"}})
    return resources


def test_the_views_and_the_schema_make_a_data_set_with_the_effect_of_the_world(tmp_path: Path) -> None:
    resources, files = make_resources(), []
    for name in ("observations", "administrations"):
        view = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
        assert (view["resourceType"], view["name"]) == ("ViewDefinition", name)
        frame = rows_of(view, resources)
        assert frame.columns == ["patient", "time", "code", "value", "unit"]
        files.append(tmp_path / f"{name}.csv")
        frame.write_csv(files[-1])
    dataset = read_table(files, schema=FOLDER / "schema.toml")
    panel = dataset.panel("source", "train")
    assert panel.outcomes[..., 0].max() < 1000  # what was entered in error is left out
    column = dataset.schema.treatments.level_width
    given, glucose, seen = panel.treatments[:, :-1, column], panel.outcomes[:, 1:, 0], panel.observed[:, 1:]
    ten, none = glucose[seen & (given == given.max())].mean(), glucose[seen & (given == 0)].mean()
    assert ten - none == pytest.approx(10 * EFFECT, abs=1.0)
