// SPDX-License-Identifier: Apache-2.0
/// Times Cuda's operations, one JSON object per line: bytes moved or FLOPs per second, and the ratio to the rate at
/// which this card copies, or multiplies in bf16, in the same run. Medians of 7 rounds, each at least 20 ms of queued
/// work.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "rows.hpp"

namespace {

using namespace fsdp;
using device::Cuda;

/// A stream, its scratch, and memory for operands that is never freed.
struct Bench {
  Bench() : arena(ledger, std::int64_t{24} << 30), stream(arena) {}

  template <class T>
  Tensor<T> make(const Shape& shape) {
    const auto tensor = arena.allocate<T>(Cuda::Arena::End::low, shape);
    if constexpr (std::is_same_v<T, bf16>)
      gpu::fill_with(stream, gpu::uniform<bf16>(0.5f), tensor);
    else if constexpr (Real<T>)
      device::enqueue(stream, device::Fill<T>{.y = tensor, .value = 0.5f});
    return tensor;
  }

  /// `bytes`: the minimum number of bytes that the operation must move.
  double bandwidth(const std::string& name, double bytes, const std::function<void()>& call) {
    return measure(name, bytes, call, "gb_per_second", 1e9, "ratio_to_copy", copy_rate);
  }
  double products(const std::string& name, double flops, const std::function<void()>& call) {
    return measure(name, flops, call, "tflops", 1e12, "ratio_to_matmul", matmul_rate);
  }

  double copy_rate = 0, matmul_rate = 0;
  device::Ledger ledger;
  Cuda::Arena arena;
  Cuda::Stream stream;

 private:
  /// Prints and returns the rate of `amount` in units of `unit`, and its ratio to `best` if that is known.
  double measure(const std::string& name, double amount, const std::function<void()>& call, const char* rate_name,
                 double unit, const char* ratio_name, double best) {
    const double seconds = gpu::seconds_of(stream, call), rate = amount / seconds;
    std::printf("{\"bench\": \"%s\", \"ms\": %.4f, \"%s\": %.1f", name.c_str(), 1e3 * seconds, rate_name, rate / unit);
    if (best > 0) std::printf(", \"%s\": %.3f", ratio_name, rate / best);
    std::puts("}");
    std::fflush(stdout);
    return rate;
  }
};

void bench_elements(Bench& b) {
  Cuda::Stream& s = b.stream;
  const std::int64_t rows = 16384, columns = 4096;
  const auto x = b.make<bf16>({rows, columns}), y = b.make<bf16>({rows, columns}), z = b.make<bf16>({rows, columns});
  const auto w = b.make<bf16>({columns});
  const auto rstd = b.make<float>({rows}), dw = b.make<float>({columns});
  const auto one = static_cast<double>(x.bytes());
  b.copy_rate = b.bandwidth("copy", 2 * one, [&] {
    Cuda::move(s, reinterpret_cast<const std::byte*>(x.data()), reinterpret_cast<std::byte*>(y.data()), x.bytes());
  });
  b.bandwidth("rms_norm 16384 x 4096 bf16", 2 * one, [&] {
    device::enqueue(s, device::RmsNorm<bf16>{.x = x, .weight = w, .eps = 1e-5f, .y = y, .rstd = rstd});
  });
  b.bandwidth("rms_norm_backward", 3 * one, [&] {
    device::enqueue(s, device::RmsNormBackward<bf16>{.x = x,
                                                     .weight = w,
                                                     .rstd = rstd,
                                                     .dy = y,
                                                     .dx = z,
                                                     .dx_write = Write::overwrite,
                                                     .dw = dw,
                                                     .dw_write = Write::overwrite});
  });
  b.bandwidth("swiglu", 3 * one, [&] { device::enqueue(s, device::SwiGlu<bf16>{.gate = x, .up = y, .h = z}); });
  b.bandwidth("swiglu_backward", 6 * one,
              [&] { device::enqueue(s, device::SwiGluBackward<bf16>{.gate = x, .up = y, .dh = z}); });
  const auto table = b.make<float>({4096, 128});
  device::enqueue(s, device::RotaryTable{.theta = 5e5f, .table = table});
  b.bandwidth("rope", 2 * one, [&] {
    device::enqueue(s, device::Rope<bf16>{.x = x, .table = table, .rotation = device::Rotation::forward});
  });

  const std::int64_t weights = 100'000'000;
  const auto main = b.make<float>({weights}), m = b.make<float>({weights}), v = b.make<float>({weights});
  const auto gradient = b.make<float>({weights});
  const auto model = b.make<bf16>({weights});
  const auto sum = b.make<double>({1});
  const auto step = b.make<device::StepDecision>({1});
  b.bandwidth("adamw 100 million", 30.0 * static_cast<double>(weights), [&] {
    device::enqueue(
        s,
        device::AdamWStep<bf16>{
            .step = step, .main = main, .first_moment = m, .second_moment = v, .gradient = gradient, .model = model});
  });
  b.bandwidth("sum_of_squares", 4.0 * static_cast<double>(weights),
              [&] { device::enqueue(s, device::SumOfSquares{.x = gradient, .sum = sum}); });

  const std::int64_t tokens = 4096, vocabulary = 128256;
  const auto logits = b.make<bf16>({tokens, vocabulary});
  const auto targets = b.make<std::int32_t>({tokens});
  const std::vector<std::int32_t> zeros(static_cast<std::size_t>(tokens));
  Cuda::move(s, reinterpret_cast<const std::byte*>(zeros.data()), reinterpret_cast<std::byte*>(targets.data()),
             targets.bytes());
  b.bandwidth("cross_entropy 4096 x 128256 bf16", 2 * static_cast<double>(logits.bytes()), [&] {
    device::enqueue(s, device::CrossEntropy<bf16>{.logits = logits, .targets = targets, .scale = 1, .loss = sum});
  });
}

void bench_matmuls(Bench& b) {
  const std::int64_t tokens = 8192, hidden = 4096, inner = 12288;
  const auto x = b.make<bf16>({tokens, hidden}), h = b.make<bf16>({tokens, inner});
  const auto w = b.make<bf16>({inner, hidden});
  const auto dw = b.make<float>({inner, hidden});
  const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(hidden) * static_cast<double>(inner);
  b.matmul_rate = b.products("matmul 8192 x 4096 x 12288 bf16", flops, [&] {
    device::enqueue(b.stream, device::Matmul<bf16>{.a = Tensor<const bf16>(x), .b = device::transposed(w), .c = h});
  });
  b.products("matmul of its input's gradient", flops, [&] {
    device::enqueue(b.stream, device::Matmul<bf16>{.a = Tensor<const bf16>(h), .b = Tensor<const bf16>(w), .c = x});
  });
  b.products("matmul of its weight's gradient, float, beta 1", flops, [&] {
    device::enqueue(b.stream,
                    device::Matmul<bf16, float>{
                        .a = device::transposed(h), .b = Tensor<const bf16>(x), .c = dw, .write = Write::accumulate});
  });
}

/// `by`: the value of TESSERA_CUDA_ATTENTION when the stream was created. With cuDNN, each line is measured with cuDNN
/// or has no time.
void bench_attention(Bench& b, const std::string& by) {
  const auto row = [&](const std::string& name, double flops, const std::function<void()>& call) {
    try {
      b.products(name, flops, call);
    } catch (const InputError& error) {
      std::printf("{\"bench\": \"%s\", \"refused\": true}\n", name.c_str());
      std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    }
  };
  for (const std::int64_t head_dim : {64, 128})
    for (const std::int64_t length : {2048, 8192, 16384}) {
      const auto mark = b.arena.mark(Cuda::Arena::End::low);
      const device::AttentionShape shape{
          .sequences = 1, .sequence_length = length, .heads = 64, .kv_heads = 8, .head_dim = head_dim};
      const auto q = b.make<bf16>({length, 64 * head_dim}), out = b.make<bf16>({length, 64 * head_dim});
      const auto dout = b.make<bf16>({length, 64 * head_dim}), dq = b.make<bf16>({length, 64 * head_dim});
      const auto k = b.make<bf16>({length, 8 * head_dim}), v = b.make<bf16>({length, 8 * head_dim});
      const auto dk = b.make<bf16>({length, 8 * head_dim}), dv = b.make<bf16>({length, 8 * head_dim});
      const auto lse = b.make<float>({64, length});
      const double product =
          64.0 * static_cast<double>(head_dim * length) * static_cast<double>(length);  // only the causal half
      const std::string size =
          " by " + by + ", 64/8 heads of " + std::to_string(head_dim) + ", sequence " + std::to_string(length);
      row("attention" + size, 2 * product, [&] {
        device::enqueue(b.stream,
                        device::Attention<bf16>{.shape = shape, .q = q, .k = k, .v = v, .out = out, .lse = lse});
      });
      row("attention_backward" + size, 5 * product, [&] {
        device::enqueue(b.stream, device::AttentionBackward<bf16>{.shape = shape,
                                                                  .q = q,
                                                                  .k = k,
                                                                  .v = v,
                                                                  .out = out,
                                                                  .lse = lse,
                                                                  .dout = dout,
                                                                  .dq = dq,
                                                                  .dk = dk,
                                                                  .dv = dv});
      });
      b.arena.release(Cuda::Arena::End::low, mark);
    }
}

#if defined(FSDP_CUDNN)
const std::vector<std::string> attentions = {"own", "cudnn"};
#else
const std::vector<std::string> attentions = {"own"};
#endif

}  // namespace

int main(int argc, char** argv) {
  return gpu::run_bench(argc, argv, [](const gpu::TimeLeft&) {
    double matmul_rate = 0;
    {
      Bench bench;
      bench_elements(bench);
      bench_matmuls(bench);
      matmul_rate = bench.matmul_rate;
    }
    for (const std::string& by : attentions) {
      setenv("TESSERA_CUDA_ATTENTION", by.c_str(), 1);
      Bench bench;
      bench.matmul_rate = matmul_rate;
      bench_attention(bench, by);
    }
  });
}
