"""Threads that work on microbatches: order, errors, and the cores that they keep to."""

import os
import threading

import pytest
import torch

from costar_cli.methods.shared import microbatches
from costar_cli.methods.shared.cores import use_threads
from costar_cli.methods.shared.dropout import MaskSource
from costar_cli.methods.shared.microbatches import cores_for_microbatches, map_microbatches, on_cores
from costar_cli.methods.shared.streams import Stream

CPU = torch.device("cpu")


@pytest.fixture
def two_threads():
    microbatches._workers.cache_clear()
    with cores_for_microbatches(2):
        yield
    microbatches._workers.cache_clear()


def test_results_come_in_the_order_of_the_items(two_threads):
    met = threading.Barrier(2)

    def slow(item: int) -> int:
        met.wait(timeout=10)  # passes only if two items are at work at once
        return item**2

    assert list(on_cores(slow, range(6), device=CPU)) == [0, 1, 4, 9, 16, 25]


def test_an_error_of_an_item_is_an_error_of_the_caller(two_threads):
    with pytest.raises(ZeroDivisionError):
        list(on_cores(lambda item: 1 // item, [1, 0], device=CPU))


@pytest.mark.parametrize(("cores", "bound"), [({0, 1}, True), ({0}, False)])
def test_threads_keep_to_one_core_each_only_where_they_use_all(two_threads, monkeypatch, cores, bound):
    chosen = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _thread: cores, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _thread, core: chosen.append(core), raising=False)
    assert list(on_cores(str, range(3), device=CPU)) == ["0", "1", "2"]
    assert sorted(map(min, chosen)) == ([0, 1] if bound else [])


@pytest.mark.parametrize("threads", [1, 2])
def test_pieces_that_are_computed_again_have_the_same_gradients(two_threads, monkeypatch, threads):
    use_threads(threads)
    microbatches._workers.cache_clear()
    runs: list[int] = []

    def gradients(kept: int) -> tuple[torch.Tensor, int]:
        monkeypatch.setattr(microbatches, "_KEPT", [kept])
        runs.clear()
        masks = MaskSource({"m": (3,)}, 0.5, [Stream(7)], device=CPU, dtype=torch.float64)
        weight_R3 = torch.linspace(-1, 1, 3, dtype=torch.float64)[None].requires_grad_()

        def microbatch_of(index: int):
            to_masks = masks.draw(2)

            def microbatch(_module, params):
                runs.append(index)
                return ((params["w"][:, None] * to_masks()["m"]).sin() * (index + 1),)

            return microbatch

        parts = map_microbatches(torch.nn.Identity(), map(microbatch_of, range(5)), {"w": weight_R3}, device=CPU)
        (slope,) = torch.autograd.grad(torch.cat([part for (part,) in parts], dim=1).square().sum(), [weight_R3])
        return slope, len(runs)

    kept, once = gradients(5)
    again, more = gradients(2)
    assert torch.equal(kept, again)
    assert torch.count_nonzero(kept) >= 2
    assert (once, more) == (5, 8)  # three of five microbatches ran twice


@pytest.mark.parametrize(("memory_gb", "kept"), [(0.01, 1), (1.0, 1), (1.51, 5), (64.0, 12)])
def test_as_many_microbatches_are_kept_as_memory_allows(monkeypatch, memory_gb, kept):
    monkeypatch.setattr(microbatches, "_KEPT", [12])
    microbatches.keep_microbatches(memory_gb)
    assert [kept] == microbatches._KEPT
