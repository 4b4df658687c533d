import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_world import environment


@pytest.mark.slow
def test_the_demo_ends_with_a_whatif_table_plots_and_the_next_commands(repository: Path, tmp_path: Path) -> None:
    env = environment(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    command = ["sh", repository / "examples" / "demo.sh"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert "difference from `watch`" in done.stdout
    assert "Try next:" in done.stdout
    plots = {file.name for file in (tmp_path / "demo-workspace").rglob("*.png")}
    names = {"rmse", "learning", "trajectories", "representations", "natural_course", "reliability", "pit", "whatif"}
    assert plots == {f"{name}.png" for name in names}
    again = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert again.stdout.count("up to date") == 5
