"""Self-supervised pretraining in the manner of MoCo-v3: two views, a momentum encoder, contrast over all positions."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from costar_cli.config.models import PretrainConfig
from costar_cli.methods.base import StepLoss
from costar_cli.methods.costar.architectures import make_encoder
from costar_cli.methods.costar.contrastive import info_nce, log_n_reference, spectral_loss
from costar_cli.methods.costar.inputs import EncoderInputs
from costar_cli.methods.costar.predictor import contrast_predictor
from costar_cli.methods.costar.representation import HistoryEncoder, microbatch_calls
from costar_cli.methods.shared.dropout import Masks, MaskSource
from costar_cli.methods.shared.members import Dims, Params
from costar_cli.methods.shared.microbatches import map_microbatches, start_microbatches
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.stage import PlainStage, initial_params
from costar_cli.methods.shared.streams import Stream
from costar_cli.panel.tensors import PanelTensors

__all__ = ["PretrainStage", "augment", "augment_with_statics"]


def augment(history_BTS: Tensor, config: PretrainConfig, stream: Stream) -> Tensor:
    """Return a randomly scaled, shifted and jittered copy of the series; statics and masks are not touched.

    With granularity `batch` a coin per transform decides for the whole batch, and scale and shift draw one number per
    feature; with `sample` each sample has its own coins and numbers. Jitter is drawn per element either way.
    Treatments are perturbed as real numbers, like everything else.
    """
    batch, n_steps, n_features = history_BTS.shape
    rows = batch if config.augment_granularity == "sample" else 1
    device, dtype = history_BTS.device, history_BTS.dtype
    coins_3R = (stream.uniform(3, rows) < config.augment_probability).to(device=device, dtype=dtype)
    sigma_3R = (config.augment_sigma * coins_3R)[:, :, None, None]
    per_feature = stream.normal(2, rows, 1, n_features, device=device, dtype=dtype)
    jitter = stream.normal(batch, n_steps, n_features, device=device, dtype=dtype)
    scaled = history_BTS * (1 + sigma_3R[0] * per_feature[0])
    return torch.addcmul(scaled + sigma_3R[1] * per_feature[1], sigma_3R[2].expand_as(jitter), jitter)


def augment_with_statics(
    history_BTS: Tensor, statics_BV: Tensor, config: PretrainConfig, stream: Stream
) -> tuple[Tensor, Tensor]:
    """Return such a copy of series and statics, these as further series (spec COSTAR-19) that stay constant.

    Statics share the coins of the series. Their jitter is that of the first step at every step.
    """
    n_features = history_BTS.shape[-1]
    statics_BTV = statics_BV[:, None].expand(-1, history_BTS.shape[1], -1)
    all_BTF = augment(torch.cat([history_BTS, statics_BTV], dim=-1), config, stream)
    return all_BTF[..., :n_features], all_BTF[:, 0, n_features:]


ENCODER, PREDICTOR = "encoder.", "predictor."


class ContrastBranch(nn.Module):
    """What is contrasted: `[1+C,B,T,D]`, the overall representation and the components, through a predictor or not.

    The predictor belongs to the microbatches that the encoder works in: their representations are still in the cache.
    """

    def __init__(self, encoder: HistoryEncoder, predictor: nn.Module, *, components: bool) -> None:
        super().__init__()
        self.encoder, self.predictor, self.components = encoder, predictor, components

    def forward(self, history_BTS: Tensor, statics_BV: Tensor, masks: Masks = None) -> tuple[Tensor]:
        """Return the one array of a microbatch."""
        z_BTD, components_CBTD = self.encoder(history_BTS, statics_BV, masks)
        kinds = torch.cat([z_BTD[None], components_CBTD]) if self.components else z_BTD[None]
        return (self.predictor(kinds),)


class PretrainStage(PlainStage):
    """The contrastive stage (spec COSTAR-8 to 13). State: the momentum encoder's parameters.

    With the spectral loss (spec COSTAR-23) both views pass the online encoder, without predictor or momentum encoder.

    Args:
        dims: numbers of covariates, treatments, outcomes and statics.
        config: settings of the stage.
        train: scaled panel to learn from; outcomes are inputs only, no labels are used.
        validation: scaled panel to watch the loss on.
        forms: of the outcomes, for an encoder of relative inputs.
    """

    name = "pretrain"
    drop_last = True

    def __init__(
        self,
        dims: Dims,
        config: PretrainConfig,
        train: PanelTensors,
        validation: PanelTensors,
        forms: tuple[OutcomeForm, ...] = (),
    ) -> None:
        self.config = config
        self.keep = config.keep
        self._spectral = config.ssl_loss == "spectral"
        inputs = EncoderInputs(dims, config.encoder.inputs, forms)
        self._make = partial(self._branch, inputs.token_dims)
        self._online = self._make().to(train.v_NV.device)
        self.encoder = self._online.encoder
        self._momentum = ContrastBranch(self.encoder, nn.Identity(), components=config.components)
        self._panels = {"train": train, "validation": validation}
        self._history = {name: inputs.history(panel)[:, :-1] for name, panel in self._panels.items()}
        self.n_train, self.n_validation = len(train.length_N), len(validation.length_N)

    def _branch(self, dims: Dims) -> ContrastBranch:
        """Return a freshly initialised encoder and its predictor."""
        encoder = make_encoder(dims, self.config.encoder)
        predictor = nn.Identity() if self._spectral else contrast_predictor(self.config.encoder.width)
        return ContrastBranch(encoder, predictor, components=self.config.components)

    def initial(self, member: int) -> tuple[Params, Params]:
        """Return a fresh member: encoder and predictor, and the momentum encoder as a copy."""
        params = initial_params(self._make, self.config, self.name, member)
        if self._spectral:
            return params, {}
        return params, {name: value.clone() for name, value in params.items() if name.startswith(ENCODER)}

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's loss on its mini-batch, and the momentum encoder after this step."""
        views, statics, active = self._views("train", rows_RB, streams)
        source = self.encoder.mask_source(views.shape[2], streams, views)
        if self._spectral:
            return self._uncorrelate(self._queries(params_R, views, statics, source), active), state_R
        with torch.no_grad():
            momentum = self.config.momentum
            state_R = {name: value.lerp(params_R[name], 1 - momentum) for name, value in state_R.items()}
        keys = self._start_keys(state_R, views, statics, source)
        queries = self._queries(params_R, views, statics, source)
        return self._contrast(queries, keys(), active, streams), state_R

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return `(loss, weight)` of a validation batch: fresh augmentation, no dropout, momentum encoder untouched."""
        views, statics, active = self._views("validation", rows_RB, streams)
        weight_R = active.flatten(1).sum(dim=1).to(views.dtype)
        if self._spectral:
            return self._uncorrelate(self._queries(params_R, views, statics, None), active), weight_R
        keys = self._start_keys(state_R, views, statics, None)
        queries = self._queries(params_R, views, statics, None)
        return self._contrast(queries, keys(), active, streams), weight_R

    def reference(self, *, validation: bool = False) -> float | None:
        """Return the loss of random guessing on a full batch, `8 temp log N` (or 4 without components).

        The spectral loss has none.
        """
        if self._spectral:
            return None
        lengths = self._panels["validation" if validation else "train"].length_N
        batch = self.config.validation_batch_size if validation else self.config.batch_size
        positions = float((lengths - 1).double().mean()) * min(batch, len(lengths))
        n = min(positions, self.config.max_contrast or float("inf"))
        components = self.config.components and self.encoder.n_components > 0
        return float(log_n_reference(torch.tensor(n), self.config.temperature, components=components))

    def _views(self, name: str, rows_RB: Tensor, streams: Sequence[Stream]) -> tuple[Tensor, Tensor, Tensor]:
        panel, history = self._panels[name], self._history[name]
        views = [
            self._two(history[rows], panel.v_NV[rows], stream) for rows, stream in zip(rows_RB, streams, strict=True)
        ]
        views_RBTS, statics_RBV = (torch.stack(values) for values in zip(*views, strict=True))
        position_T = torch.arange(history.shape[1], device=history.device)
        active_RBT = position_T < (panel.length_N[rows_RB] - 1)[..., None]
        return views_RBTS, statics_RBV, active_RBT

    def _two(self, history_BTS: Tensor, statics_BV: Tensor, stream: Stream) -> tuple[Tensor, Tensor]:
        """Return two views of a member's batch, one behind the other."""
        if self.encoder.statics_are_series:
            pairs = [augment_with_statics(history_BTS, statics_BV, self.config, stream) for _ in range(2)]
        else:
            pairs = [(augment(history_BTS, self.config, stream), statics_BV) for _ in range(2)]
        views_2BTS, statics_2BV = zip(*pairs, strict=True)
        return torch.cat(views_2BTS), torch.cat(statics_2BV)

    def _start_keys(
        self, state_R: Params, views: Tensor, statics: Tensor, masks: MaskSource | None
    ) -> Callable[[], Tensor]:
        """Start the momentum encoder; return what waits for its `[R,1+C,2B,T,D]`."""
        calls = microbatch_calls(self.encoder, views, statics, masks)
        wait = start_microbatches(self._momentum, calls, state_R, device=views.device)
        return lambda: torch.cat([kinds for (kinds,) in wait()], dim=2)

    def _queries(self, params_R: Params, views: Tensor, statics: Tensor, masks: MaskSource | None) -> Tensor:
        """Return `[R,1+C,2B,T,D]`: the predictions for the overall representation and the contrasted components."""
        calls = microbatch_calls(self.encoder, views, statics, masks)
        return torch.cat(
            [kinds for (kinds,) in map_microbatches(self._online, calls, params_R, device=views.device)], dim=2
        )

    def _contrast(self, queries: Tensor, keys: Tensor, active_RBT: Tensor, streams: Sequence[Stream]) -> Tensor:
        n_members, n_kinds, twice_batch, _, width = queries.shape
        by_view = (n_members, n_kinds, 2, twice_batch // 2, -1, width)
        q = queries.view(n_members, n_kinds * 2, -1, width)
        k = keys.view(by_view).flip(2).view(n_members, n_kinds * 2, -1, width)
        chosen_RM = self._positions(active_RBT.flatten(1), streams)
        counts_RM = active_RBT.flatten(1).gather(1, chosen_RM)
        q, k = (
            torch.cat([of_member.index_select(1, chosen) for of_member, chosen in zip(kinds, chosen_RM, strict=True)])
            for kinds in (q, k)
        )
        active = counts_RM[:, None].expand(-1, n_kinds * 2, -1).flatten(0, 1)
        per_kind = info_nce(q, k, active, self.config.temperature).view(n_members, n_kinds, 2).sum(dim=2)
        components = per_kind[:, 1:].mean(dim=1) if n_kinds > 1 else 0.0
        return per_kind[:, 0] + components

    def _uncorrelate(self, views: Tensor, active_RBT: Tensor) -> Tensor:
        """Return the spectral loss of the overall representation, plus the mean of the components' (spec COSTAR-23)."""
        n_members, n_kinds, _, _, width = views.shape
        first, second = views.view(n_members, n_kinds, 2, -1, width).unbind(2)
        active_RKN = active_RBT.flatten(1)[:, None].expand(-1, n_kinds, -1)
        per_kind = spectral_loss(first, second, self.config.spectral_sigma, active_N=active_RKN)
        return per_kind[:, 0] + (per_kind[:, 1:].mean(dim=1) if n_kinds > 1 else 0.0)

    def _positions(self, active_RN: Tensor, streams: Sequence[Stream]) -> Tensor:
        """Return the positions to contrast: as many as the fullest member has active ones, active ones first."""
        count = int(active_RN.sum(dim=1).max())
        if self.config.max_contrast is None or self.config.max_contrast >= count:
            return active_RN.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count]
        score = torch.stack([stream.uniform(active_RN.shape[1]) for stream in streams]).to(active_RN.device)
        return (score + active_RN).topk(self.config.max_contrast, dim=1).indices
