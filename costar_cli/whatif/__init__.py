"""What-if: one subject, several treatment plans, estimated outcomes.

Use: `request = read_plans(path, dataset.schema.treatments, horizon=model.horizon)` (`costar_cli.plans`), then
`report = estimate_outcomes(dataset, {label: model}, request, subject=12)`. The report has `to_rows()`,
`difference_rows()` (both with the columns `COLUMNS`), `to_json()` and `notes`; `write_csv` and `write_estimates`
store it. The plot is in `costar_cli.figures.whatif` (`plot_whatif(report, path)`), apart because it imports matplotlib.
"""

from costar_cli.whatif.estimate import estimate_outcomes
from costar_cli.whatif.notes import validated_on
from costar_cli.whatif.report import COLUMNS, ModelAnswer, Row, SubjectHistory, WhatIfReport
from costar_cli.whatif.store import write_csv, write_estimates

__all__ = [
    "COLUMNS",
    "ModelAnswer",
    "Row",
    "SubjectHistory",
    "WhatIfReport",
    "estimate_outcomes",
    "validated_on",
    "write_csv",
    "write_estimates",
]
