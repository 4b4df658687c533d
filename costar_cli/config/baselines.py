"""The settings that belong to one method alone, by method; what all methods share is `FinetuneConfig`."""

from collections.abc import Mapping

from costar_cli.config.linear import MsmConfig, RidgeConfig
from costar_cli.config.models import Config
from costar_cli.config.networks import NetworkConfig
from costar_cli.config.recurrent import CrnConfig, CrnErmConfig, GNetConfig, RmsnConfig
from costar_cli.config.transformers import CtConfig, CtErmConfig, EdctConfig

__all__ = ["METHOD_SETTINGS", "NetworkConfig"]

# By the method's name; the section of `crn-erm` is `crn_erm`.
METHOD_SETTINGS: Mapping[str, type[Config]] = {
    "msm": MsmConfig,
    "ridge": RidgeConfig,
    "rmsn": RmsnConfig,
    "crn": CrnConfig,
    "crn-erm": CrnErmConfig,
    "gnet": GNetConfig,
    "ct": CtConfig,
    "ct-erm": CtErmConfig,
    "edct": EdctConfig,
}
