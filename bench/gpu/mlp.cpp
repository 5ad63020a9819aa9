// SPDX-License-Identifier: Apache-2.0
/// The SwiGLU MLP at the published shape on a GPU, one JSON object per line: untiled compared with its nine matmuls
/// alone, and tiled with no kept tiles compared with untiled. Ratios are taken round by round; each line is the median
/// of 7 rounds.
#include <memory>

#include "../../src/program/calibrate/rounds.hpp"
#include "../mlp_matmuls.hpp"

#include "rows.hpp"

namespace {

using namespace fsdp;
using namespace fsdp::bench;
using calibrate::Rounds;
using device::Cuda;

using Layer = MlpLayer<nn::Local<Cuda, Bf16Mixed>>;
using Matmuls = MlpMatmuls<Cuda, bf16>;

constexpr std::int64_t hidden = 4096, intermediate = 12288;
constexpr std::int64_t first_tiled = 32768;  // shorter sequences have too few tiles to benefit from tiling
constexpr int repeats = 7;
constexpr float weight_scale = 0.02f;  // dx replaces dy, and becomes smaller

void fill(const Layer::Operands& operands, Cuda::Stream& stream) {
  const auto ones = gpu::uniform<bf16>(1.0f), weights = gpu::uniform<bf16>(weight_scale);
  for (int i = 0; i < 3; ++i) {
    gpu::fill_with(stream, ones, operands.stream(i));
    gpu::fill_with(stream, weights, operands.matrices<bf16>(operands.weights, i, 1));
  }
}

std::int64_t scratch_of_matmuls(const MlpSizes& sizes) {
  MlpMatmuls<device::MetaOf<Cuda>, bf16> dry(sizes, 0);
  dry.nine();
  return dry.scratch_bytes();
}

/// A layer with one tiling, and its case in the measured rounds.
struct Tiled {
  const char* tiling;
  std::unique_ptr<Layer> layer;
  std::size_t number = 0;
};

class Measurement {
 public:
  explicit Measurement(const MlpSizes& sizes)
      : operands_(ledger_, sizes), matmuls_(sizes, scratch_of_matmuls(sizes)), ones_(gpu::uniform<bf16>(1.0f)) {
    fill(operands_, matmuls_.stream());
    fill(matmuls_.operands(), matmuls_.stream());
    add("off", {});
    if (sizes.tokens >= first_tiled) {
      add("tokens:8192", tiling::RunTimeTiling::tokens(8192));
      add("tokens:4096", tiling::RunTimeTiling::tokens(4096));
    }
  }

  void run() {
    calls_ = std::max(1, static_cast<int>(0.02 / seconds_of_untiled()));
    for (Tiled& tiled : tilings_)
      tiled.number = rounds_.add([&, layer = tiled.layer.get()] { repeat(*layer, calls_); },
                                 [&, layer = tiled.layer.get()] { restore(*layer); });
    nine_ = rounds_.add([&] {
      for (int i = 0; i < calls_; ++i) matmuls_.nine();
      matmuls_.stream().synchronize();
    });
    rounds_.run(repeats);
  }

  void print(const Tiled& tiled) const {
    const MlpSizes& sizes = operands_.sizes;
    const double flops = 18.0 * static_cast<double>(sizes.tokens * sizes.hidden) *
                         static_cast<double>(sizes.intermediate);  // FLOPs of nine products, whether recomputed or not
    const double seconds = rounds_.median_seconds(tiled.number) / calls_;
    std::printf(
        "{\"bench\": \"mlp\", \"seq\": %lld, \"tiling\": \"%s\", \"ms\": %.3f, \"tflops\": %.1f, "
        "\"matmuls_ms\": %.3f, \"ratio_to_matmuls\": %.3f, \"ratio_to_untiled\": %.3f, \"activation_bytes\": %lld, "
        "\"peak_bytes\": %lld}\n",
        static_cast<long long>(sizes.tokens), tiled.tiling, 1e3 * seconds, flops / seconds / 1e12,
        1e3 * rounds_.median_seconds(nine_) / calls_, rounds_.median_ratio(tiled.number, nine_),
        rounds_.median_ratio(tiled.number, tilings_.front().number), static_cast<long long>(tiled.layer->arena_peak()),
        static_cast<long long>(operands_.bytes() + tiled.layer->arena_peak()));
    std::fflush(stdout);
  }
  void print() const {
    for (const Tiled& tiled : tilings_) print(tiled);
  }

 private:
  void add(const char* name, const tiling::RunTimeTiling& tiling) {
    const auto plans = std::make_shared<nn::TilePlans>(tiling);
    const std::int64_t arena_bytes = planned_arena<Bf16Mixed, Cuda>(operands_.sizes, plans);
    tilings_.push_back({name, std::make_unique<Layer>(operands_, plans, arena_bytes)});
  }
  static void repeat(Layer& layer, int calls) {
    for (int i = 0; i < calls; ++i) {
      layer.forward();
      layer.backward();
    }
    layer.stream().synchronize();
  }
  void restore(Layer& layer) { gpu::fill_with(layer.stream(), ones_, operands_.dy()); }
  double seconds_of_untiled() {
    Layer& layer = *tilings_.front().layer;
    repeat(layer, 2);
    const double begin = gpu::seconds_now();
    repeat(layer, 1);
    return gpu::seconds_now() - begin;
  }

  device::Ledger ledger_;
  const Layer::Operands operands_;
  Matmuls matmuls_;
  std::vector<bf16> ones_;
  std::vector<Tiled> tilings_;
  Rounds rounds_;
  std::size_t nine_ = 0;
  int calls_ = 1;
};

void bench_mlp(const gpu::TimeLeft& left) {
  double estimate = 5;  // seconds; later twice the time of the previous length
  for (std::int64_t tokens = 2048; tokens <= 131072; tokens *= 2) {
    if (!left.suffices("mlp of " + std::to_string(tokens) + " tokens and more", estimate)) return;
    const double begin = gpu::seconds_now();
    Measurement measurement({.tokens = tokens, .hidden = hidden, .intermediate = intermediate});
    measurement.run();
    measurement.print();
    estimate = (tokens < first_tiled ? 4.0 : 2.2) * (gpu::seconds_now() - begin);  // longer ones have three tilings
  }
}

}  // namespace

int main(int argc, char** argv) { return gpu::run_bench(argc, argv, bench_mlp); }
