// One layer of the LSTM of costar_cli/methods/recurrent/lstm.py, its gates in one pass over memory in either direction.
// Shapes: gates [R,T,4D,B] in the order i, f, g, o; hidden, cell, tanh_cell [R,T,D,B]; states and masks [R,D,B].
#include <torch/extension.h>

using torch::Tensor;

namespace {
float* row(const Tensor& values, int64_t r, int64_t t) { return values[r][t].data_ptr<float>(); }
float* row(const Tensor& values, int64_t r) { return values[r].data_ptr<float>(); }
inline float sigmoid(float x) { return 1.f / (1.f + std::exp(-x)); }
inline float tanh_of(float x) { return 1.f - 2.f / (1.f + std::exp(2.f * x)); }
}  // namespace

// `gates` hold what the inputs add, and become activations; `carried` and `kept` start as the first state.
void forward(Tensor gates, Tensor weight, Tensor carried, Tensor kept, Tensor hidden, Tensor cell, Tensor tanh_cell,
             Tensor keep_hidden, Tensor keep_cell) {
  const int64_t members = gates.size(0), steps = gates.size(1), n = carried[0].numel();
  for (int64_t t = 0; t < steps; t++) {
    gates.select(1, t).baddbmm_(weight, carried);
    for (int64_t r = 0; r < members; r++) {
      float *i = row(gates, r, t), *f = i + n, *g = f + n, *o = g + n;
      float *h = row(hidden, r, t), *c = row(cell, r, t), *q = row(tanh_cell, r, t), *hs = row(carried, r), *cs = row(kept, r);
      const float *kh = row(keep_hidden, r), *kc = row(keep_cell, r);
#pragma GCC ivdep
      for (int64_t k = 0; k < n; k++) {
        i[k] = sigmoid(i[k]), f[k] = sigmoid(f[k]), g[k] = tanh_of(g[k]), o[k] = sigmoid(o[k]);
        c[k] = f[k] * cs[k] + i[k] * g[k], q[k] = tanh_of(c[k]), h[k] = o[k] * q[k];
        hs[k] = h[k] * kh[k], cs[k] = c[k] * kc[k];
      }
    }
  }
}

// `gates` become their gradients; `to_hidden` and `to_cell` start as zeros, and become those of the first state.
void backward(Tensor gates, Tensor weight, Tensor first, Tensor cell, Tensor tanh_cell, Tensor keep_hidden,
              Tensor keep_cell, Tensor grad, Tensor to_hidden, Tensor to_cell) {
  const int64_t members = gates.size(0), steps = gates.size(1), n = first[0].numel();
  const Tensor ones = torch::ones_like(keep_cell);
  for (int64_t t = steps - 1; t >= 0; t--) {
    for (int64_t r = 0; r < members; r++) {
      float *i = row(gates, r, t), *f = i + n, *g = f + n, *o = g + n, *th = row(to_hidden, r), *tc = row(to_cell, r);
      const float *q = row(tanh_cell, r, t), *of = row(grad, r, t), *before = t ? row(cell, r, t - 1) : row(first, r);
      const float *kh = row(keep_hidden, r), *kc = t ? row(keep_cell, r) : row(ones, r);
#pragma GCC ivdep
      for (int64_t k = 0; k < n; k++) {
        const float in = i[k], keep = f[k], candidate = g[k], out = o[k], of_hidden = of[k] + th[k] * kh[k];
        const float of_cell = tc[k] + of_hidden * out * (1.f - q[k] * q[k]);
        i[k] = of_cell * candidate * in * (1.f - in), f[k] = of_cell * before[k] * kc[k] * keep * (1.f - keep);
        g[k] = of_cell * in * (1.f - candidate * candidate), o[k] = of_hidden * q[k] * out * (1.f - out);
        tc[k] = of_cell * keep * kc[k];
      }
    }
    at::bmm_out(to_hidden, weight, gates.select(1, t));
  }
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("forward", &forward);
  module.def("backward", &backward);
}
