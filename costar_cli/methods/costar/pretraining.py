"""Self-supervised pretraining: contrast in the manner of MoCo-v3 (two views, a momentum encoder) and other pretexts."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, Literal

import torch
from torch import Tensor, nn

from costar_cli.config.models import PretrainConfig
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.base import StepLoss
from costar_cli.methods.costar.architectures import make_encoder
from costar_cli.methods.costar.contrastive import info_nce, log_n_reference, spectral_loss
from costar_cli.methods.costar.inputs import EncoderInputs
from costar_cli.methods.costar.predictor import contrast_predictor
from costar_cli.methods.costar.pretexts import Masked, NextStep, Pretext
from costar_cli.methods.costar.representation import HistoryEncoder, encode_members, microbatch_calls
from costar_cli.methods.shared.dropout import Masks, MaskSource
from costar_cli.methods.shared.members import Dims, Params, submodule
from costar_cli.methods.shared.microbatches import map_microbatches, start_microbatches
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.stage import PlainStage, initial_params
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import SubjectRows


def augment(history_BTS: Tensor, config: PretrainConfig, stream: Stream) -> Tensor:
    """Return a randomly scaled, shifted and jittered copy of the series; statics and masks are not touched.

    With granularity `batch` a coin per transform decides for the whole batch, and scale and shift draw one number per
    feature; with `sample` each sample has its own coins and numbers. Jitter is drawn per element either way.
    Treatments are perturbed as real numbers, like everything else.
    """
    batch, n_steps, n_features = history_BTS.shape
    rows = batch if config.augment_granularity == "sample" else 1
    device, dtype = history_BTS.device, history_BTS.dtype
    coins_3R = (stream.uniform(3, rows, device=device) < config.augment_probability).to(dtype)
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
    # Jitter per step would make a static something that moves, and the mean over steps would average it away.
    n_features = history_BTS.shape[-1]
    statics_BTV = statics_BV[:, None].expand(-1, history_BTS.shape[1], -1)
    all_BTF = augment(torch.cat([history_BTS, statics_BTV], dim=-1), config, stream)
    return all_BTF[..., :n_features], all_BTF[:, 0, n_features:]


ENCODER, PREDICTOR = "encoder.", "predictor."
PartName = Literal["train", "validation"]

# A batch of more positions than LARGEST contrasts a random CAP of them: cost grows with the square. The default
# batches of simulated data sets have at most 4,544 positions in training, and 18,176 in validation.
LARGEST: Final[dict[PartName, int]] = {"train": 5_120, "validation": 20_480}
CAP: Final = 4_096


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
    """The stage that learns representations without labels, by contrast (spec COSTAR-8 to 13) or other pretexts.

    State: the momentum encoder's parameters, with contrast. With the spectral loss (spec COSTAR-23) both views pass the
    online encoder, without predictor or momentum encoder. Other pretexts (spec COSTAR-28 to 30) have passes and heads
    of their own.

    Args:
        dims: numbers of covariates, treatments, outcomes and statics.
        config: settings of the stage.
        train: scaled panel to learn from.
        validation: scaled panel to watch the loss on.
        forms: of the outcomes, for an encoder of relative inputs, and to predict the next step.
    """

    name = "pretrain"
    drop_last = True
    members_at_once = 1  # two views of a batch fill the caches

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
        pretexts = config.pretext.split("+")
        self._contrasts, self._spectral = "contrastive" in pretexts, config.ssl_loss == "spectral"
        inputs = EncoderInputs(dims, config.encoder.inputs, forms)
        self._token_dims = inputs.token_dims
        self._online = self._branch().to(train.v_NV.device)
        self.encoder = self._online.encoder
        self._momentum = ContrastBranch(self.encoder, nn.Identity(), components=config.components)
        self._panels = {"train": train, "validation": validation}
        self._history = {name: inputs.history(panel)[:, :-1] for name, panel in self._panels.items()}
        self._rows = {name: SubjectRows(panel) for name, panel in self._panels.items()}
        self._beside: list[Pretext] = []
        if "masked" in pretexts:
            self._beside.append(Masked.of(self._history["train"], train, inputs.variables, config.mask_share))
        if "next_step" in pretexts:
            self._beside.append(NextStep.of(dims, forms, train))
        self._heads = {pretext.name: self._head(pretext).to(train.v_NV.device) for pretext in self._beside}
        self.n_train, self.n_validation = len(train.length_N), len(validation.length_N)

    def _head(self, pretext: Pretext) -> nn.Module:
        return pretext.head(self.config.encoder.width)

    def _branch(self) -> ContrastBranch:
        """Return a freshly initialised encoder and its predictor."""
        encoder = make_encoder(self._token_dims, self.config.encoder)
        predictor = nn.Identity() if self._spectral else contrast_predictor(self.config.encoder.width)
        return ContrastBranch(encoder, predictor, components=self.config.components)

    def initial(self, member: int) -> tuple[Params, Params]:
        """Return a fresh member: encoder, predictor and heads, and the momentum encoder as a copy."""

        def make() -> nn.Module:
            branch = self._branch()
            parts = {"encoder": branch.encoder} | ({"predictor": branch.predictor} if self._contrasts else {})
            return nn.ModuleDict(parts | {pretext.name: self._head(pretext) for pretext in self._beside})

        params = initial_params(make, self.config, self.name, member)
        if self._spectral or not self._contrasts:
            return params, {}
        return params, {name: value.clone() for name, value in params.items() if name.startswith(ENCODER)}

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's loss on its mini-batch, and the momentum encoder after this step."""
        if state_R:
            with torch.no_grad():
                momentum = self.config.momentum
                state_R = {name: value.lerp(params_R[name], 1 - momentum) for name, value in state_R.items()}
        return self._loss("train", params_R, state_R, rows_RB, streams), state_R

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return `(loss, weight)` of a validation batch: fresh augmentation, no dropout, momentum encoder untouched."""
        active = self._active("validation", rows_RB)
        loss_R = self._loss("validation", params_R, state_R, rows_RB, streams)
        return loss_R, active.flatten(1).sum(dim=1).to(loss_R.dtype)

    def reference(self, *, validation: bool = False) -> float | None:
        """Return the loss of knowing nothing: with contrast alone `8 temp log N` (or 4 without components).

        Of several pretexts each loss is divided by that, so that it is their number. The spectral loss has none.
        """
        if self._contrasts and (self._spectral or not self._beside):
            return self._guessing(validation=validation)
        return float(self._contrasts + len(self._beside))

    def _guessing(self, *, validation: bool = False) -> float | None:
        """Return the contrastive loss of random guessing on a full batch."""
        if self._spectral:
            return None
        name: PartName = "validation" if validation else "train"
        batch = self.config.validation_batch_size if validation else self.config.batch_size
        lengths = self._panels[name].length_N
        positions = float((lengths - 1).double().mean()) * min(batch, len(lengths))
        n = min(positions, self._most(name, positions))
        components = self.config.components and self.encoder.n_components > 0
        return float(log_n_reference(torch.tensor(n), self.config.temperature, components=components))

    @cached_property
    def _guess(self) -> float:
        """Return what a contrastive loss is divided by, to be a share of that of knowing nothing."""
        return self._guessing() or 1.0

    def _loss(
        self, name: PartName, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> Tensor:
        """Return each member's loss, of several pretexts the sum of their shares in the loss of knowing nothing."""
        losses = [self._contrastive(name, params_R, state_R, rows_RB, streams)] if self._contrasts else []
        if not self._beside:
            return losses[0]
        losses = [loss_R / self._guess for loss_R in losses]
        rows, history_RBTS = self._rows[name], self._history[name][rows_RB]
        series = rows.batch(rows_RB, torch.arange(len(rows_RB), device=rows_RB.device))
        encoder_R = submodule(params_R, ENCODER)
        for pretext in self._beside:
            seen_RBTS = pretext.seen(history_RBTS, streams)
            drawn = self.encoder.mask_source(seen_RBTS.shape[2], streams, seen_RBTS) if name == "train" else None
            z_RBTD = encode_members(self.encoder, encoder_R, seen_RBTS, series.statics_RBV, drawn).z_BTD
            head, own_R = self._heads[pretext.name], submodule(params_R, f"{pretext.name}.")
            losses.append(pretext.loss(head, own_R, z_RBTD, (history_RBTS, seen_RBTS), series) / pretext.guess)
        return torch.stack(losses).sum(dim=0)

    def _contrastive(
        self, name: PartName, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> Tensor:
        views, statics, active_RBT = self._views(name, rows_RB, streams)
        source = self.encoder.mask_source(views.shape[2], streams, views) if name == "train" else None
        online_R = {n: value for n, value in params_R.items() if n.startswith((ENCODER, PREDICTOR))}
        if not self._spectral:
            keys = self._start_keys(state_R, views, statics, source)
            queries = self._queries(online_R, views, statics, source)
            return self._contrast(name, queries, keys(), active_RBT, streams)
        both = self._queries(online_R, views, statics, source)
        n_members, n_kinds, _, _, width = both.shape
        first, second = both.view(n_members, n_kinds, 2, -1, width).unbind(2)
        active_RKN = active_RBT.flatten(1)[:, None].expand(-1, n_kinds, -1)
        per_kind = spectral_loss(first, second, self.config.spectral_sigma, active_N=active_RKN)
        # of the overall representation, plus the mean of the components' (spec COSTAR-23)
        return per_kind[:, 0] + (per_kind[:, 1:].mean(dim=1) if n_kinds > 1 else 0.0)

    def _active(self, name: PartName, rows_RB: Tensor) -> Tensor:
        """Return which positions of rows have a next step, `[R,B,T]`."""
        position_T = torch.arange(self._history[name].shape[1], device=rows_RB.device)
        return position_T < (self._panels[name].length_N[rows_RB] - 1)[..., None]

    def _views(self, name: PartName, rows_RB: Tensor, streams: Sequence[Stream]) -> tuple[Tensor, Tensor, Tensor]:
        """Return two views of each member's batch, one behind the other, their statics, and which positions count."""
        views_R = []
        for row_B, stream in zip(rows_RB, streams, strict=True):
            history_BTS, statics_BV = self._history[name][row_B], self._panels[name].v_NV[row_B]
            if self.encoder.statics_are_series:
                pairs = [augment_with_statics(history_BTS, statics_BV, self.config, stream) for _ in range(2)]
            else:
                pairs = [(augment(history_BTS, self.config, stream), statics_BV) for _ in range(2)]
            views_R.append([torch.cat(both) for both in zip(*pairs, strict=True)])
        views_RBTS, statics_RBV = (torch.stack(values) for values in zip(*views_R, strict=True))
        return views_RBTS, statics_RBV, self._active(name, rows_RB)

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

    def _contrast(
        self, name: PartName, queries: Tensor, keys: Tensor, active_RBT: Tensor, streams: Sequence[Stream]
    ) -> Tensor:
        n_members, n_kinds, twice_batch, _, width = queries.shape
        by_view = (n_members, n_kinds, 2, twice_batch // 2, -1, width)
        q = queries.view(n_members, n_kinds * 2, -1, width)
        k = keys.view(by_view).flip(2).view(n_members, n_kinds * 2, -1, width)
        chosen_RM, counts_RM = self._positions(name, active_RBT.flatten(1), streams)
        q, k = (
            torch.cat([of_member.index_select(1, chosen) for of_member, chosen in zip(kinds, chosen_RM, strict=True)])
            for kinds in (q, k)
        )
        active = counts_RM[:, None].expand(-1, n_kinds * 2, -1).flatten(0, 1)
        per_kind = info_nce(q, k, active, self.config.temperature).view(n_members, n_kinds, 2).sum(dim=2)
        components = per_kind[:, 1:].mean(dim=1) if n_kinds > 1 else 0.0
        return per_kind[:, 0] + components

    def _positions(self, name: PartName, active_RN: Tensor, streams: Sequence[Stream]) -> tuple[Tensor, Tensor]:
        """Return which positions are contrasted, and which of them count: as many as the fullest member has.

        Where steps are replayed there are more, which do not count: shapes do not depend on how many are active.
        """
        if streams[0].is_replayed:
            n_positions, largest = active_RN.shape[1], LARGEST[name]
            slots = self.config.max_contrast or largest
            if slots >= n_positions:
                return torch.arange(n_positions, device=active_RN.device).expand_as(active_RN), active_RN
            chosen_RM = _drawn(active_RN, slots, streams)
            counts_RM = active_RN.gather(1, chosen_RM)
            if self.config.max_contrast is None:
                # A pretext that draws after the contrast here has other random numbers than without graphs.
                limit = torch.where(active_RN.sum(dim=1).max() > largest, CAP, slots)
                counts_RM = counts_RM & (torch.arange(slots, device=active_RN.device) < limit)
            return chosen_RM, counts_RM
        count = int(active_RN.sum(dim=1).max())
        most = int(self._most(name, count))
        if most >= count:
            chosen_RM = active_RN.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count]
        else:
            chosen_RM = _drawn(active_RN, most, streams)
        return chosen_RM, active_RN.gather(1, chosen_RM)

    def _most(self, name: PartName, positions: float) -> float:
        """Return how many positions of a batch are contrasted at most."""
        if self.config.max_contrast is not None:
            return self.config.max_contrast
        return CAP if positions > LARGEST[name] else positions


def _drawn(active_RN: Tensor, most: int, streams: Sequence[Stream]) -> Tensor:
    """Return so many positions of each member, `[R,M]`: active ones first, in random order."""
    score_RN = torch.stack([stream.uniform(active_RN.shape[1], device=active_RN.device) for stream in streams])
    return (score_RN + active_RN).topk(most, dim=1).indices
