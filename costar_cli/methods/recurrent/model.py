"""A trained recurrent method: what is known of every history, and the answers to queries from that."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from costar_cli.data import Panel, Queries
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.recurrent.lstm import LstmState
from costar_cli.methods.recurrent.network import Make, Passed, RecurrentNetwork, over_subjects
from costar_cli.methods.shared.members import member_module
from costar_cli.methods.shared.microbatches import microbatch_size
from costar_cli.methods.shared.networks import NetworkModel
from costar_cli.methods.shared.trained import AnswerJob

CPU_ELEMENTS = 2**20  # gates of the queries that one core answers at once: 4 MiB, what its caches hold
GPU_ELEMENTS = 2**27  # half of what encoding takes: the states at the origins are gathered beside them

Networks = Mapping[str, RecurrentNetwork]


@dataclass(frozen=True)
class Histories:
    """The series of N subjects, and what each of R members knows at every step, `[N,T,D]`."""

    panel: PanelTensors
    subject_id_N: Tensor
    known_R: list[Tensor]


@dataclass(frozen=True)
class QueryBatch:
    """A batch of queries to one member: what it knows at the origins, and the plans.

    Shapes: `known_QD`, `covariates_QX`, `outcomes_QY` (both at the origin), `statics_QV`, `plan_QHA`, and
    `subject_id_Q`, `origin_Q`, which identify the history.
    """

    member: int
    known_QD: Tensor
    covariates_QX: Tensor
    outcomes_QY: Tensor
    statics_QV: Tensor
    plan_QHA: Tensor
    subject_id_Q: Tensor
    origin_Q: Tensor


@dataclass(frozen=True, kw_only=True)
class RecurrentModel(NetworkModel[Histories]):
    """Networks of R members, `params` named `NETWORK.lstm.*` and so on, each `[R,...]`."""

    @property
    def stepwise(self) -> bool:
        """Return that each step is predicted from the one before."""
        return True

    @abstractmethod
    def makes(self) -> Mapping[str, Make]:
        """Return what makes each network that predictions need, by name; the first one reads the history."""

    def networks(self) -> Mapping[str, Make]:
        """Return the networks by their parameters' prefixes."""
        return {f"{name}.": make for name, make in self.makes().items()}

    def encode_history(self, network: RecurrentNetwork, panel: PanelTensors) -> Tensor:
        """Return what one member knows of every history, `[N,T,D]`: by default its state before each step.

        That is the state of every layer, `D = 2 * layers * width`, zeros before the first step. Networks that read the
        treatment of the step know no more: at an origin that treatment is the plan's.
        """

        # Not the state after the step: RMSN and G-Net read a_t with x_t and y_t, and a plan may begin with another a_t.
        def read(passed: Passed) -> Tensor:
            return torch.stack([*passed.done.hidden, *passed.done.cell], dim=-2)[0].flatten(-2)

        n_subjects, n_steps = panel.y_NTY.shape[:2]
        if n_steps == 1:
            return panel.y_NTY.new_zeros(n_subjects, 1, 2 * network.lstm.num_layers * network.lstm.hidden_size)
        return functional.pad(over_subjects(network, panel, n_steps - 1, read), (0, 0, 1, 0))

    @abstractmethod
    def predict(self, networks: Networks, asked: QueryBatch) -> Tensor:
        """Return one member's scaled outcomes `[Q,H,Y]`."""

    def elements_per_query(self, networks: Networks) -> int:
        """Return how many numbers a query takes where it takes most."""
        return max(network.elements_per_position for network in networks.values())

    def encode_series(self, panel: Panel) -> Histories:
        """Return what every member knows of every subject's history at every step, on the model's device."""
        tensors = self.scaled(panel)
        known_R = [self.encode_history(next(iter(networks.values())), tensors) for networks in self._networks_R()]
        return Histories(tensors, torch.from_numpy(panel.subject_id).to(self.device), known_R)

    def jobs(self, states: Histories, queries: Queries, batch_size: int) -> Iterator[Iterable[AnswerJob]]:
        """Yield jobs of as many queries as one core's caches, or a GPU's memory, hold."""
        networks_R = self._networks_R()
        size = microbatch_size(
            self.elements_per_query(networks_R[0]),
            batch_size,
            states.panel.y_NTY.device,
            cpu_elements=CPU_ELEMENTS,
            gpu_elements=GPU_ELEMENTS,
        )

        def predict(some: Queries) -> Tensor:
            panel, predicted_R = states.panel, []
            subject = torch.from_numpy(some.subject.astype(np.int64)).to(panel.y_NTY.device)
            origin = torch.from_numpy(some.origin.astype(np.int64)).to(panel.y_NTY.device)
            for r, networks in enumerate(networks_R):
                known_NTD = states.known_R[r]
                asked = QueryBatch(
                    member=r,
                    known_QD=known_NTD[subject, origin],
                    covariates_QX=panel.x_NTX[subject, origin],
                    outcomes_QY=panel.y_NTY[subject, origin],
                    statics_QV=panel.v_NV[subject],
                    plan_QHA=torch.from_numpy(some.plan).to(known_NTD),
                    subject_id_Q=states.subject_id_N[subject],
                    origin_Q=origin,
                )
                predicted_R.append(self.predict(networks, asked))
            return torch.stack(predicted_R)

        return self.jobs_of_all_members(predict, queries, size)

    def _networks_R(self) -> list[dict[str, RecurrentNetwork]]:
        makes = self.makes()
        return [
            {name: member_module(make(), self.params_of(name), member) for name, make in makes.items()}
            for member in range(self.members)
        ]


def state_at(known_QD: Tensor, network: RecurrentNetwork) -> LstmState:
    """Return rows of states before steps, as `RecurrentModel.encode_history` returns them, as a state."""
    layers_2lQD = known_QD.view(len(known_QD), 2, network.lstm.num_layers, -1).permute(1, 2, 0, 3)
    return LstmState(layers_2lQD[0][None], layers_2lQD[1][None])
