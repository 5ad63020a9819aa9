// SPDX-License-Identifier: Apache-2.0
/// @file
/// The head alone, including final norm and loss, compared with its three matmuls.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/loss_head.hpp>

#include "../src/program/calibrate/computations.hpp"
#include "lines.hpp"
#include "options.hpp"

namespace fsdp::bench {
namespace {

using calibrate::fill_uniform;
using calibrate::Tensors;
using device::Cpu;

struct HeadSizes {
  std::int64_t tokens = 0, hidden = 0, vocabulary = 0;
  int threads = 1;
};

/// The operands of the head and of its matmuls, shared by all tilings.
template <class Device, class Compute>
struct Operands {
  explicit Operands(const HeadSizes& sizes) : sizes(sizes) {
    if constexpr (!Device::counts_only) {
      fill_uniform(x, 1.0f);
      fill_uniform(weight, 0.05f);
      std::fill_n(norm.data(), sizes.hidden, Compute(1.0f));
      for (std::int64_t t = 0; t < sizes.tokens; ++t)
        targets[t] = static_cast<std::int32_t>(t * 9973 % sizes.vocabulary);
    }
  }
  HeadSizes sizes;
  Tensors<Device> memory = {};
  Tensor<Compute> x = memory.template make<Compute>({sizes.tokens, sizes.hidden});           // [T, H]
  Tensor<Compute> dx = memory.template make<Compute>(x.shape());                             // [T, H]
  Tensor<Compute> norm = memory.template make<Compute>({sizes.hidden});                      // [H]
  Tensor<Compute> weight = memory.template make<Compute>({sizes.vocabulary, sizes.hidden});  // [V, H]
  Tensor<float> norm_gradient = memory.template make<float>(norm.shape());                   // [H]
  Tensor<float> weight_gradient = memory.template make<float>(weight.shape());               // [V, H]
  Tensor<std::int32_t> targets = memory.template make<std::int32_t>({sizes.tokens});         // [T]
};

/// The module with one tiling, and the matmuls alone. On Meta it only counts memory.
template <class L>
class Head {
 public:
  using Device = typename L::Device;
  using Compute = typename L::Compute;
  using Arena = typename Device::Arena;

  Head(const Operands<Device, Compute>& operands, std::shared_ptr<nn::TilePlans> plans, std::int64_t arena_bytes)
      : operands_(operands),
        module_{{}, operands.sizes.vocabulary, operands.sizes.hidden},
        arena_(Arena::planned(ledger_, arena_bytes)),
        stream_(arena_, operands.sizes.threads),
        context_{
            .arena = arena_, .stream = stream_, .plans = std::move(plans), .sequence_length = operands.sizes.tokens} {}
  Head(const Head&) = delete;
  Head& operator=(const Head&) = delete;

  void loss() {
    bool written[2] = {};
    double sum = 0;
    const auto& o = operands_;
    module_.loss(context_, {o.norm, o.weight}, {{o.norm_gradient, &written[0]}, {o.weight_gradient, &written[1]}}, o.x,
                 o.targets, 1.0f, o.dx, {&sum, {1}});
  }
  /// Computes the logits, and the gradients of the weight and of x, by one matmul each over all tokens.
  void three_matmuls(const Tensor<Compute>& logits) {
    const auto& o = operands_;
    device::enqueue(stream_, device::Matmul<Compute>{.a = o.x, .b = device::transposed(o.weight), .c = logits});
    device::enqueue(stream_,
                    device::Matmul<Compute, float>{.a = device::transposed(logits), .b = o.x, .c = o.weight_gradient});
    device::enqueue(stream_, device::Matmul<Compute>{.a = logits, .b = o.weight, .c = o.dx});
  }
  std::int64_t arena_peak() const { return arena_.peak(); }
  tiling::TilePlan plan() { return module_.plan(context_); }

 private:
  const Operands<Device, Compute>& operands_;
  nn::LossHead<L> module_;
  device::Ledger ledger_;
  Arena arena_;
  typename Device::Stream stream_;
  nn::Context<L> context_;
};

template <class PrecisionT>
void measure(const BenchOptions& options, const HeadSizes& sizes, const std::vector<tiling::RunTimeTiling>& tilings) {
  using Compute = typename PrecisionT::Compute;
  using Layer = Head<nn::Local<Cpu, PrecisionT>>;
  using Planned = Head<nn::Local<device::Meta, PrecisionT>>;
  const Operands<device::Meta, Compute> unbacked(sizes);
  const Operands<Cpu, Compute> operands(sizes);
  Rounds rounds;
  std::vector<std::unique_ptr<Layer>> layers;
  for (const tiling::RunTimeTiling& tiling : tilings) {
    const auto plans = std::make_shared<nn::TilePlans>(tiling);
    Planned planned(unbacked, plans, 0);
    planned.loss();
    layers.push_back(std::make_unique<Layer>(operands, plans, planned.arena_peak()));
    rounds.add([&layer = *layers.back()] { layer.loss(); });
  }
  const auto untiled = std::make_shared<nn::TilePlans>();
  Planned planned(unbacked, untiled, 0);
  const Shape logits_shape{sizes.tokens, sizes.vocabulary};
  planned.three_matmuls(Tensors<device::Meta>().template make<Compute>(logits_shape));
  Layer matmuls(operands, untiled, planned.arena_peak());
  Tensors<Cpu> memory;
  const auto logits = memory.template make<Compute>(logits_shape);
  const std::size_t three = rounds.add([&] { matmuls.three_matmuls(logits); });
  rounds.run(options.repeats);

  for (std::size_t i = 0; i < layers.size(); ++i) {
    const tiling::TilePlan plan = layers[i]->plan();
    Line("head")
        .add("tokens", sizes.tokens, "hidden", sizes.hidden, "vocabulary", sizes.vocabulary)
        .add("tiling", tilings[i].text(), "precision", PrecisionT::name, "threads", sizes.threads)
        .add("tokens_per_tile", plan.longest_tile())
        .add("columns_per_block", plan.columns_per_block > 0 ? plan.columns_per_block : sizes.vocabulary)
        .add("ms", 1e3 * rounds.median_seconds(i), "matmul_ms", 1e3 * rounds.median_seconds(three))
        .add("ratio", rounds.median_ratio(i, three), "planned_bytes", plan.peak_bytes())
        .add("arena_bytes", layers[i]->arena_peak())
        .print();
  }
}

}  // namespace

void measure_head(const BenchOptions& options, const train::FlagSet& flags) {
  const std::vector<tiling::RunTimeTiling> tilings{flags.is_given("tiling") ? cli::known_tiling(options.stack.tiling)
                                                                            : tiling::RunTimeTiling::tokens(1024)};
  const HeadSizes sizes{.tokens = options.seq_len > 0 ? options.seq_len : 4096,
                        .hidden = options.hidden,
                        .vocabulary = options.vocab > 0 ? options.vocab : 32000,
                        .threads = options.threads()};
  (options.bf16() ? measure<Bf16Mixed> : measure<Fp32>)(options, sizes, tilings);
}

}  // namespace fsdp::bench
