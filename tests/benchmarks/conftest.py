import pytest


@pytest.fixture(autouse=True)
def _no_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each timing the garbage is collected: of all that a test worker holds, half a second each time."""
    monkeypatch.setattr("benchmarks.measure.gc.collect", lambda: 0)
