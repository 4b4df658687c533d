"""Draw docs/img/data-report.png: pictures of the data report on the table in examples/own-data.

python docs/data_report_picture.py
"""

import io
from pathlib import Path

from PIL import Image

from costar_cli.data.report import describe_dataset
from costar_cli.data.table import TableInputs, ingest_table
from costar_cli.data.table.schema_file import read_schema
from costar_cli.report.figures.data import figures
from costar_cli.reporting import NullReporter

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "own-data"
SHOWN = ("lengths", "treatments", "outcomes", "shifts")


def main() -> None:
    """Write the picture."""
    schema = read_schema(EXAMPLE / "schema.toml")
    report = describe_dataset(ingest_table(TableInputs([EXAMPLE / "small.csv"]), schema, NullReporter()))
    images = []
    for name, _, figure in figures(report):
        if name in SHOWN:
            content = io.BytesIO()
            figure.savefig(content, format="png", dpi=110)
            images.append(Image.open(content))
    whole = Image.new("RGB", (max(i.width for i in images), sum(i.height for i in images)), "white")
    top = 0
    for image in images:
        whole.paste(image, (0, top))
        top += image.height
    whole.quantize(64).save(HERE / "img" / "data-report.png", optimize=True)


if __name__ == "__main__":
    main()
