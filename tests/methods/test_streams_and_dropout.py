"""Random streams and dropout masks: functions of their key alone."""

import pytest
import torch

from costar_cli.methods.shared.dropout import MaskSource, kept_bytes
from costar_cli.methods.shared.streams import Stream

CPU = torch.device("cpu")
SHAPES = {"a": (3, 5), "b": (7,)}


def source(*keys: int, rate: float = 0.1) -> MaskSource:
    return MaskSource(SHAPES, rate, [Stream(key) for key in keys], device=CPU, dtype=torch.float32)


def test_streams_differ_by_any_part_of_their_key():
    keys = [(1, "step", 0), (2, "step", 0), (1, "shuffle", 0), (1, "step", 1), (11, "step", 0)]
    draws = [Stream(*key).random_bytes(64, CPU) for key in keys]
    assert len({bytes(d.numpy()) for d in draws}) == len(keys)
    assert torch.equal(draws[0], Stream(1, "step", 0).random_bytes(64, CPU))


def test_masks_keep_the_stated_share():
    mask = source(1).draw(20_000)()["a"]
    assert mask.unique().tolist() == [0.0, 1.0]
    assert kept_bytes(0.1) == 230
    assert mask.mean().item() == pytest.approx(230 / 256, abs=0.002)


def test_masks_do_not_depend_on_how_many_samples_are_drawn_at_once():
    whole = source(1, 2).draw(9)()
    parts_source = source(1, 2)
    microbatches = [parts_source.draw(n)() for n in (4, 1, 4)]
    for name in SHAPES:
        assert torch.equal(whole[name], torch.cat([p[name] for p in microbatches], dim=1))


def test_members_draw_the_same_masks_together_and_apart():
    together = source(1, 2).draw(5)()
    for row, key in enumerate((1, 2)):
        alone = source(key).draw(5)()
        assert all(torch.equal(together[name][row], alone[name][0]) for name in SHAPES)


def test_rate_zero_draws_nothing():
    assert source(1, rate=0.0).draw(5)() == {}
