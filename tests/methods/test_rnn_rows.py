"""What recurrent networks learn from: each position's inputs and targets, and the windows of decoders."""

import pytest
import torch

from costar_cli.data import Dataset
from costar_cli.errors import DataError
from costar_cli.methods.shared.windows import OriginRows, SubjectRows
from tests.methods.rnn_worlds import tensors, ward

MEMBERS = torch.tensor([1, 0])


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return ward()


@pytest.fixture(scope="module")
def panel(dataset):
    return tensors(dataset)


def all_windows(panel, steps: int) -> list[tuple[int, int]]:
    return [(n, t) for n, length in enumerate(panel.length_N.tolist()) for t in range(1, length - 1 - steps)]


def initial(panel, members: int = 2) -> torch.Tensor:
    n_subjects, n_steps = panel.y_NTY.shape[:2]
    return torch.randn(members, n_subjects, n_steps - 1, 5)


def test_a_series_has_what_is_known_and_what_follows_at_each_position(panel):
    batch = SubjectRows(panel).batch(torch.tensor([[3, 7], [0, 3]]), MEMBERS).time_first()
    for r, b, n in ((0, 0, 3), (0, 1, 7), (1, 0, 0), (1, 1, 3)):
        for t in range(panel.y_NTY.shape[1] - 1):
            before = panel.a_NTA[n, t - 1] if t else torch.zeros(2)
            assert torch.equal(batch.column("previous")[r, t, b], before)
            assert torch.equal(batch.column("treatment")[r, t, b], panel.a_NTA[n, t])
            assert torch.equal(batch.column("covariates")[r, t, b], panel.x_NTX[n, t])
            assert torch.equal(batch.column("outcomes")[r, t, b], panel.y_NTY[n, t])
            assert torch.equal(batch.column("statics")[r, t, b], panel.v_NV[n])
            assert torch.equal(batch.target[r, t, b], panel.y_NTY[n, t + 1])
            assert torch.equal(batch.next_covariates[r, t, b], panel.x_NTX[n, t + 1])
            assert batch.active[r, t, b] == float(t < panel.length_N[n] - 1)
            assert batch.active_next[r, t, b] == float(t < panel.length_N[n] - 2)


def test_rows_can_be_some_of_the_subjects(panel):
    rows = SubjectRows(panel, torch.tensor([5, 9, 11]))
    assert len(rows) == 3
    assert rows.batch(torch.tensor([[2, 0]]), MEMBERS[:1]).subject_RB.tolist() == [[11, 5]]


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_windows_start_at_every_position_that_leaves_room(panel, steps):
    rows = OriginRows(panel, steps, initial(panel))
    assert list(zip(rows.subject_M.tolist(), rows.start_M.tolist(), strict=True)) == all_windows(panel, steps)
    everything = torch.arange(len(rows)).expand(2, -1)
    assert bool((rows.batch(everything, MEMBERS).active == 1).all())


def test_a_window_starts_from_what_the_members_own_encoder_knew_one_step_before(panel):
    known = initial(panel)
    rows = OriginRows(panel, 3, known)
    picked = torch.tensor([[0, 17, 40], [5, 17, 2]])
    batch = rows.batch(picked, MEMBERS).time_first()
    for r, member in enumerate(MEMBERS.tolist()):
        for b, row in enumerate(picked[r].tolist()):
            n, t = all_windows(panel, 3)[row]
            assert torch.equal(batch.encoded_RBD[r, b], known[member, n, t - 1])
            assert torch.equal(batch.column("previous")[r, :, b], panel.a_NTA[n, t - 1 : t + 2])
            assert torch.equal(batch.column("outcomes")[r, :, b], panel.y_NTY[n, t : t + 3])
            assert torch.equal(batch.target[r, :, b], panel.y_NTY[n, t + 1 : t + 4])


def test_series_that_are_all_too_short_are_refused(panel):
    with pytest.raises(DataError, match="no subject has enough steps to learn 12 predicted steps"):
        OriginRows(panel, 11, initial(panel))
