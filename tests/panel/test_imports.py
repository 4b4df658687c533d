"""Opening the room is cheap: tables, files and tensors bring their libraries when they are asked for."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("costar_cli.data", ["polars", "torch", "h5py", "pandas", "simulators"]),
        ("costar_cli.data.check", ["polars", "torch", "h5py", "pandas", "simulators"]),
        ("costar_cli.data.store", ["polars", "torch", "pandas", "simulators"]),
        ("costar_cli.data.tumor.simulate", ["polars", "torch", "h5py", "pandas", "scipy.stats"]),
        ("costar_cli.data.icu.semi_synthetic", ["polars", "torch", "h5py", "pandas", "tables"]),
        ("costar_cli.data.icu.extract", ["polars", "torch", "h5py", "pandas", "tables"]),
        ("costar_cli.data.report", ["polars", "torch", "h5py", "pandas", "simulators", "matplotlib"]),
        ("costar_cli.report.pages", ["jinja2", "polars", "torch", "h5py", "pandas", "simulators", "matplotlib"]),
        ("costar_cli.data.table", ["torch", "h5py", "pandas", "simulators"]),
    ],
)
def test_module_leaves_unneeded_libraries_out(module: str, absent: list[str]):
    code = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
