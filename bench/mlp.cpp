// SPDX-License-Identifier: Apache-2.0
/// @file
/// The SwiGLU MLP alone, compared with its nine matmuls.
#include <algorithm>
#include <memory>
#include <vector>

#include <tessera/fsdp/device/cpu.hpp>

#include "lines.hpp"
#include "mlp_layer.hpp"
#include "mlp_matmuls.hpp"
#include "options.hpp"

namespace fsdp::bench {
namespace {

using device::Cpu;

template <class PrecisionT>
void measure(const BenchOptions& options, const MlpSizes& sizes, const std::vector<tiling::RunTimeTiling>& tilings,
             bool print_untiled) {
  using Layer = MlpLayer<nn::Local<Cpu, PrecisionT>>;
  struct Measured {
    tiling::RunTimeTiling tiling;
    std::unique_ptr<Layer> layer;
    std::size_t forward = 0, backward = 0;
  };
  device::Ledger ledger;
  const typename Layer::Operands operands(ledger, sizes);
  Rounds rounds;
  std::vector<Measured> list;
  std::int64_t largest_arena = 0;
  for (const tiling::RunTimeTiling& tiling : tilings) {
    const auto plans = std::make_shared<nn::TilePlans>(tiling);
    const std::int64_t arena_bytes = planned_arena<PrecisionT>(sizes, plans);
    largest_arena = std::max(largest_arena, arena_bytes);
    auto layer = std::make_unique<Layer>(operands, plans, arena_bytes);
    Layer& own = *layer;
    const std::size_t forward = rounds.add([&own] { own.forward(); }, [&own] { own.restore(); });
    const std::size_t backward = rounds.add([&own] { own.backward(); });
    list.push_back({tiling, std::move(layer), forward, backward});
  }
  MlpMatmuls<Cpu, typename PrecisionT::Compute> matmuls(sizes, largest_arena);
  const std::size_t nine = rounds.add([&] { matmuls.nine(); });
  const std::size_t six = rounds.add([&] { matmuls.six(); });
  rounds.run(options.repeats);

  const auto layer_seconds = [&](const Measured& measured, std::size_t round) {
    return rounds.seconds(measured.forward, round) + rounds.seconds(measured.backward, round);
  };
  for (std::size_t i = print_untiled ? 0 : 1; i < list.size(); ++i) {
    const Measured& measured = list[i];
    const auto ratio_to = [&](std::size_t floor) {
      return rounds.median_of(
          [&](std::size_t round) { return layer_seconds(measured, round) / rounds.seconds(floor, round); });
    };
    Line line("mlp");
    line.add("seq", sizes.tokens)
        .add("tiling", measured.tiling.text(), "precision", PrecisionT::name, "threads", sizes.threads)
        .add("hidden", sizes.hidden, "intermediate", sizes.intermediate)
        .add("forward_ms", 1e3 * rounds.median_seconds(measured.forward))
        .add("backward_ms", 1e3 * rounds.median_seconds(measured.backward))
        .add("peak_bytes", operands.bytes() + measured.layer->arena_peak())
        .add("activation_bytes", measured.layer->arena_peak(), "stream_bytes", operands.streams.bytes())
        .add("weight_bytes", operands.weights.bytes(), "gradient_bytes", operands.gradients.bytes())
        .add("gemm_floor_ms", 1e3 * rounds.median_seconds(nine), "module_gemm_ms", 1e3 * rounds.median_seconds(six))
        .add("ratio", ratio_to(nine), "ratio_to_module_gemm", ratio_to(six));
    if (i > 0)
      line.add("ratio_to_untiled", rounds.median_of([&](std::size_t round) {
        return layer_seconds(measured, round) / layer_seconds(list[0], round);
      }));
    line.print();
  }
}

}  // namespace

void measure_mlp(const BenchOptions& options, const train::FlagSet& flags) {
  using tiling::RunTimeTiling;
  std::vector<RunTimeTiling> tilings{{}};  // untiled is always measured, since other tilings are compared with it
  if (!flags.is_given("tiling"))
    tilings.insert(tilings.end(), {RunTimeTiling::tiles(4), RunTimeTiling::tokens(1024)});
  else if (options.stack.tiling != RunTimeTiling())
    tilings.push_back(cli::known_tiling(options.stack.tiling));
  const bool print_untiled = tilings.size() != 2;
  MlpSizes sizes{.hidden = options.hidden,
                 .intermediate = options.intermediate > 0 ? options.intermediate : 3072,
                 .threads = options.threads()};
  for (const std::int64_t tokens : {std::int64_t{2048}, std::int64_t{4096}}) {
    sizes.tokens = options.seq_len > 0 ? options.seq_len : tokens;
    (options.bf16() ? measure<Bf16Mixed> : measure<Fp32>)(options, sizes, tilings, print_untiled);
    if (options.seq_len > 0) break;
  }
}

}  // namespace fsdp::bench
