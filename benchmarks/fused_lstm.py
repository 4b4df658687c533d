"""What one compiled operator for the LSTM would save: ours, fused in C++, and cell by cell, forward and backward.

    python -m benchmarks.fused_lstm [--json] [--out FILE] [--quick] [--threads 1] [--repeats 25]

`fused_lstm.cpp` is compiled for this processor, which takes a compiler and a minute. All three have the same gradients,
which is checked first, and take turns. Why `costar` does without it: docs/adr/0038-no-compilation.md.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.cpp_extension import load

from benchmarks.literal_networks import LiteralLstm
from benchmarks.measure import Figure, Measured, interleaved, ratio, run
from costar_cli.methods.recurrent import lstm

# Steps, inputs, hidden units and rows of encoders and a decoder of `--preset paper` on tumours, and of `quick`.
SHAPES: Final = {
    "crn_encoder": (59, 5, 24, 256),
    "gnet": (59, 5, 72, 128),
    "crn_decoder": (5, 27, 18, 1024),
    "quick": (59, 5, 24, 16),
}
SMALL: Final = "quick"


def fused_recurrence(compiled: Any) -> type:
    """Return a function like `_Recurrence` that calls the compiled operator."""

    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, inputs: Tensor, of_inputs: Tensor, weight: Tensor, bias: Tensor, *rest: Tensor) -> Any:
            hidden, cell, *keep = rest
            gates = torch.matmul(of_inputs[:, None], inputs).add_(bias[:, None, :, None])
            shape = (*gates.shape[:2], *hidden.shape[1:])
            hiddens, cells, tanh_cells = (gates.new_empty(shape) for _ in range(3))
            compiled.forward(gates, weight, hidden.clone(), cell.clone(), hiddens, cells, tanh_cells, *keep)
            ctx.save_for_backward(inputs, of_inputs, weight, gates, hiddens, cells, tanh_cells, *rest)
            ctx.mark_non_differentiable(cells)
            return hiddens, cells

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            inputs, of_inputs, weight, gates, hiddens, cells, tanh_cells, hidden, cell, *keep = ctx.saved_tensors
            to_hidden, to_cell = torch.zeros_like(hidden), torch.zeros_like(cell)
            back = weight.transpose(1, 2).contiguous()
            compiled.backward(gates, back, cell, cells, tanh_cells, *keep, grads[0].contiguous(), to_hidden, to_cell)
            read = torch.cat([inputs, lstm._before(hiddens, hidden, keep[0])], dim=2)
            weights = torch.matmul(gates, read.transpose(2, 3)).sum(dim=1)
            to_inputs = torch.matmul(of_inputs.transpose(1, 2)[:, None], gates)
            of_weights = weights.split([inputs.shape[2], hiddens.shape[2]], dim=2)
            return to_inputs, *of_weights, gates.sum(dim=(1, 3)), to_hidden, to_cell, None, None

    return Fused


def steps_of(forms: dict[str, Any], shape: tuple[int, int, int, int]) -> dict[str, Callable[[], Sequence[Tensor]]]:
    """Return a forward and backward pass of each form, on the same numbers."""
    steps, n_inputs, width, rows = shape
    drawn = torch.Generator().manual_seed(10)
    normal = partial(torch.randn, generator=drawn)
    sizes = (1, steps, n_inputs, rows), (1, 4 * width, n_inputs), (1, 4 * width, width), (1, 4 * width)
    learnt = [(normal(*size) * 0.3).requires_grad_() for size in sizes]
    start = [torch.zeros(1, width, rows) for _ in range(2)]
    keep = [(torch.rand(1, width, rows, generator=drawn) > 0.1).float() / 0.9 for _ in range(2)]
    grad = normal(1, steps, width, rows)

    def step(form: Any) -> Sequence[Tensor]:
        return torch.autograd.grad(form.apply(*learnt, *start, *keep)[0], learnt, grad)

    return {name: partial(step, form) for name, form in forms.items()}


def measure(options: argparse.Namespace) -> Measured:
    torch.set_num_threads(options.threads)
    begun, source = time.perf_counter(), Path(__file__).with_suffix(".cpp")
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-O3", "-ffast-math", "-march=native"]
        compiled = load("fused_lstm", [str(source)], extra_cflags=flags, build_directory=folder)
    figures = {"compiling_s": Figure("compiling", time.perf_counter() - begun, "s")}
    forms = {"ours": lstm._Recurrence, "fused": fused_recurrence(compiled), "literal": LiteralLstm}
    timings = {}
    for name, shape in SHAPES.items():
        calls = steps_of(forms, (5, *shape[1:]) if options.quick else shape)
        literal = calls["literal"]()
        for form in ("ours", "fused"):
            torch.testing.assert_close(list(calls[form]()), list(literal), rtol=1e-3, atol=1e-2)
        timings[name] = interleaved(calls, options.repeats, warmup=2)
        for slow in ("ours", "literal"):
            times = ratio(timings[name], slow, "fused")
            figures[f"{name}_{slow}"] = Figure(f"{name}: {slow} over fused", times, "x", at_most=slow == "ours")
    details = {name: {form: vars(one) for form, one in of.items()} for name, of in timings.items()}
    return Measured(figures, {"timings": details})


def main(argv: Sequence[str] | None = None) -> None:
    run("fused_lstm", __doc__, measure, argv, repeats=25, add_options=lambda parser: parser.set_defaults(threads=1))


if __name__ == "__main__":
    main()
