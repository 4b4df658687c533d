"""The ensemble axis: parameters of R members stacked, and modules called on all of them at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils._pytree import tree_map

Params = dict[str, Tensor]
Dims = tuple[int, int, int, int]  # numbers of covariates, treatments, outcomes and statics
ModuleT = TypeVar("ModuleT", bound=nn.Module)


def n_members(params_R: Mapping[str, Tensor]) -> int:
    """Return R."""
    return int(next(iter(params_R.values())).shape[0])


def named_params(module: nn.Module, prefix: str = "") -> Params:
    """Return one member's parameters by name, detached."""
    return {prefix + name: value.detach().clone() for name, value in module.named_parameters()}


def stack_members(members: Iterable[Params]) -> Params:
    """Stack parameters of single members along a new leading axis."""
    first, *rest = members
    return {name: torch.stack([value, *(other[name] for other in rest)]) for name, value in first.items()}


def of_members(params_R: Mapping[str, Tensor], members: Sequence[int]) -> Params:
    """Return the parameters of some members."""
    return {name: value[list(members)] for name, value in params_R.items()}


def submodule(params: Mapping[str, Tensor], prefix: str) -> Params:
    """Return the parameters under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in params.items() if name.startswith(prefix)}


def with_prefix(params: Mapping[str, Tensor], module: str) -> Params:
    """Return the parameters of a module under its name."""
    return {f"{module}.{name}": value for name, value in params.items()}


def member_module(module: ModuleT, params_R: Mapping[str, Tensor], member: int) -> ModuleT:
    """Return a module with one member's parameters, without gradients; it shares their memory."""
    own = {name: value[member] for name, value in params_R.items()}
    module.to(next(iter(own.values())).device).load_state_dict(own, assign=True)
    return module.requires_grad_(False)


def call_members(module: nn.Module, params_R: Params, *args_R: Any) -> Any:  # noqa: ANN401 - any pytree of tensors
    """Call a module with each member's parameters on that member's arguments.

    Every tensor of `args_R` and of the result leads with the member axis. A single member is called directly, which
    spares the overhead of `vmap`; the results agree to rounding (invariant 4 of docs/concepts.md).
    """

    def call(params: Params, args: Any) -> Any:  # noqa: ANN401
        return functional_call(module, params, args)

    if n_members(params_R) == 1:
        one: Callable[[Tensor], Tensor] = lambda t: t.squeeze(0)  # noqa: E731 - its gradient is a view, unlike t[0]
        return tree_map(lambda t: t[None], call(tree_map(one, params_R), tree_map(one, args_R)))
    return vmap(call)(params_R, args_R)
