"""Where training computes: device, arithmetic, threads, memory, and how many members share a step."""

import contextlib
import ctypes
import sys
from dataclasses import dataclass

from costar_cli.config.memory import GB, total_memory
from costar_cli.config.models import RuntimeConfig
from costar_cli.errors import DeviceError
from costar_cli.files.digest import Making, making_here
from costar_cli.methods.base import Place, Stage
from costar_cli.methods.shared import processes
from costar_cli.methods.shared.cores import chosen_threads, thread_count, use_threads
from costar_cli.reporting import Reporter

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -2, -3, -8  # malloc.h
MIB = 2**20


def keep_freed_memory() -> bool:
    """Tell the C library to reuse freed memory instead of returning it to the system; return whether it listened.

    A training step allocates and frees tensors of megabytes. By default glibc maps and unmaps them each time, and the
    kernel clears every page again: some ten thousand page faults per step. 32 MiB is the largest threshold it takes;
    larger tensors are mapped as before. All thresholds are set together because setting one freezes the others at
    their small defaults. One arena for all threads lets one use what another has freed, which lowers the peak. Other
    systems and C libraries keep their own ways.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - other C libraries lack it
        mallopt = libc.mallopt
    except (AttributeError, OSError):
        return False
    settings = ((M_ARENA_MAX, 1), (M_MMAP_THRESHOLD, 32 * MIB), (M_TRIM_THRESHOLD, 256 * MIB), (M_TOP_PAD, 64 * MIB))
    return all(mallopt(option, value) == 1 for option, value in settings)


@dataclass(frozen=True)
class Runtime(Place):
    """A resolved `RuntimeConfig`."""

    threads: int = 1
    group: int | None = None
    graphs: bool = False

    @classmethod
    def of_arrays(cls, config: RuntimeConfig) -> "Runtime":
        """Return where arrays are computed on: torch is not imported, unless a GPU or several processes are asked for.

        Raises:
            DeviceError: as `resolve`.
        """
        if config.device == "cuda" or processes.count() > 1:
            return cls.resolve(config)
        keep_freed_memory()
        if config.threads is not None:
            use_threads(config.threads)
        return cls(precision=config.precision, threads=thread_count(), group=config.group)

    @classmethod
    def resolve(cls, config: RuntimeConfig) -> "Runtime":
        """Choose the device and set the process-wide arithmetic switches.

        Raises:
            DeviceError: CUDA was asked for and there is none, or the device lacks the precision.
        """
        import torch  # noqa: PLC0415 - what is fitted by numpy does without

        from costar_cli.methods.shared.microbatches import keep_microbatches  # noqa: PLC0415

        has_cuda = torch.cuda.is_available()
        if config.device == "cuda" and not has_cuda:
            raise DeviceError(
                "no CUDA device is available", where="--device cuda", fix="use `--device cpu`, or see `costar doctor`"
            )
        device = torch.device("cuda" if has_cuda and config.device != "cpu" else "cpu")
        if config.precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise DeviceError(
                "this GPU has no bfloat16 arithmetic", where="--precision bf16", fix="use `--precision float32`"
            )
        keep_freed_memory()
        if (threads := config.threads or chosen_threads()) is not None:  # maybe for a fit that needed no torch
            torch.set_num_threads(threads)
            use_threads(threads)
        several = processes.here()
        default_gb = total_memory(sharing=several).n_bytes / GB / 2
        keep_microbatches(config.max_memory / several if config.max_memory else default_gb)
        torch.set_float32_matmul_precision("high" if config.precision == "tf32" else "highest")
        device = processes.join(device)
        can_record = device.type == "cuda" and processes.count() == 1  # what waits for other processes is not recorded
        graphs = can_record and config.graphs is not False
        return cls(str(device), config.precision, torch.get_num_threads(), config.group, graphs)

    @property
    def kind(self) -> str:
        """Return the kind of the device: `cpu` or `cuda`."""
        return self.name.partition(":")[0]

    def tell_of_graphs(self, config: RuntimeConfig, reporter: Reporter) -> None:
        """Note that networks are trained without CUDA graphs where these were asked for."""
        if config.graphs and not self.graphs:
            why = "several processes train together" if self.kind == "cuda" else "they need a GPU"
            reporter.note(f"training goes on without CUDA graphs, which `runtime.graphs` asks for: {why}")

    def making(self) -> Making:
        """Return on what, and with which versions, this process trains: what its rounding depends on."""
        return making_here(self.kind, self.threads)

    def group_size(self, stage: Stage, members: int) -> int:
        """Return how many members share a step: the chosen number, or all on a GPU, those of the stage on a CPU."""
        default = members if self.kind == "cuda" else stage.members_at_once or members
        return min(self.group or default, members)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Return the context in which losses are computed."""
        if self.precision == "bf16":
            import torch  # noqa: PLC0415 - what is fitted by numpy does without

            return torch.autocast(self.kind, dtype=torch.bfloat16)
        return contextlib.nullcontext()
