// SPDX-License-Identifier: Apache-2.0
/// @file
/// The head alone, final norm and loss included, against the three matmuls that it consists of.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/loss_head.hpp>

#include "alone.hpp"
#include "floors.hpp"
#include "lines.hpp"
#include "rounds.hpp"

namespace fsdp::bench {
namespace {

using device::Cpu;
using device::MemoryKind;

struct HeadSizes {
  std::int64_t tokens = 0, hidden = 0, vocabulary = 0;
  int threads = 1;
};

/// x and dx [T, H], the norm and the weight [V, H], their gradients, and targets. All tilings and the matmuls share
/// them.
template <class Device, class Compute>
struct Operands {
  explicit Operands(const HeadSizes& sizes)
      : sizes(sizes),
        streams(ledger, MemoryKind::activations, 2 * sizes.tokens * sizes.hidden * element),
        weights(ledger, MemoryKind::gathered, (sizes.vocabulary + 1) * sizes.hidden * element),
        gradients(ledger, MemoryKind::gradients, (sizes.vocabulary + 1) * sizes.hidden * std::int64_t{sizeof(float)}),
        targets(ledger, MemoryKind::activations, sizes.tokens * std::int64_t{sizeof(std::int32_t)}) {
    if constexpr (!Device::counts_only) {
      fill_uniform(stream(0), 1.0f);
      fill_uniform(matrix<Compute>(weights), 0.05f);
      std::fill_n(vector<Compute>(weights).data(), sizes.hidden, Compute(1.0f));
      for (std::int64_t t = 0; t < sizes.tokens; ++t)
        target_list()[t] = static_cast<std::int32_t>(t * 9973 % sizes.vocabulary);
    }
  }
  static constexpr auto element = std::int64_t{sizeof(Compute)};

  Tensor<Compute> stream(int index) const {
    return {reinterpret_cast<Compute*>(streams.data()) + index * sizes.tokens * sizes.hidden,
            {sizes.tokens, sizes.hidden}};
  }
  template <class T>
  static T* data(const device::Block<Device>& block) {
    return reinterpret_cast<T*>(block.data());
  }
  template <class T>
  Tensor<T> vector(const device::Block<Device>& block) const {
    return {data<T>(block), {sizes.hidden}};
  }
  template <class T>
  Tensor<T> matrix(const device::Block<Device>& block) const {
    return {data<T>(block) + sizes.hidden, {sizes.vocabulary, sizes.hidden}};
  }
  Tensor<std::int32_t> target_list() const { return {data<std::int32_t>(targets), {sizes.tokens}}; }

  HeadSizes sizes;
  device::Ledger ledger;
  device::Block<Device> streams, weights, gradients, targets;
};

/// The module with one tiling; on Meta it only counts memory.
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
    module_.loss(context_,
                 {operands_.template vector<const Compute>(operands_.weights),
                  operands_.template matrix<const Compute>(operands_.weights)},
                 {{operands_.template vector<float>(operands_.gradients), &written[0]},
                  {operands_.template matrix<float>(operands_.gradients), &written[1]}},
                 operands_.stream(0), operands_.target_list(), 1.0f, operands_.stream(1), {&sum, {1}});
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

/// Logits and the gradients of the weight and of x: one matmul each over all tokens, in memory of that size.
template <class Device, class Compute>
class Matmuls {
 public:
  Matmuls(const Operands<Device, Compute>& operands, typename Device::Arena& arena)
      : operands_(operands),
        stream_(arena, operands.sizes.threads),
        logits_(ledger_, MemoryKind::activations,
                operands.sizes.tokens * operands.sizes.vocabulary * std::int64_t{sizeof(Compute)}) {}

  void three() {
    const Tensor<Compute> logits(reinterpret_cast<Compute*>(logits_.data()),
                                 {operands_.sizes.tokens, operands_.sizes.vocabulary});
    const auto weight = operands_.template matrix<Compute>(operands_.weights);
    device::enqueue(stream_,
                    device::Matmul<Compute>{.a = operands_.stream(0), .b = device::transposed(weight), .c = logits});
    device::enqueue(stream_,
                    device::Matmul<Compute, float>{.a = device::transposed(logits),
                                                   .b = operands_.stream(0),
                                                   .c = operands_.template matrix<float>(operands_.gradients)});
    device::enqueue(stream_, device::Matmul<Compute>{.a = logits, .b = weight, .c = operands_.stream(1)});
  }

 private:
  const Operands<Device, Compute>& operands_;
  device::Ledger ledger_;
  typename Device::Stream stream_;
  device::Block<Device> logits_;
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
  device::Meta::Arena planned_scratch = device::Meta::Arena::unbounded();
  Matmuls<device::Meta, Compute>(unbacked, planned_scratch).three();
  device::Ledger ledger;
  Cpu::Arena scratch(ledger, planned_scratch.peak());
  Matmuls<Cpu, Compute> matmuls(operands, scratch);
  const std::size_t three = rounds.add([&] { matmuls.three(); });
  rounds.run(options.repeats);

  for (std::size_t i = 0; i < layers.size(); ++i) {
    const tiling::TilePlan plan = layers[i]->plan();
    Line("head")
        .add("tokens", sizes.tokens)
        .add("hidden", sizes.hidden)
        .add("vocabulary", sizes.vocabulary)
        .add("tiling", tilings[i].text())
        .add("precision", PrecisionT::name)
        .add("threads", sizes.threads)
        .add("tokens_per_tile", plan.longest_tile())
        .add("columns_per_block", plan.columns_per_block > 0 ? plan.columns_per_block : sizes.vocabulary)
        .add("ms", 1e3 * rounds.median_seconds(i))
        .add("matmul_ms", 1e3 * rounds.median_seconds(three))
        .add("ratio", rounds.median_ratio(i, three))
        .add("planned_bytes", plan.peak_bytes())
        .add("arena_bytes", layers[i]->arena_peak())
        .print();
  }
}

}  // namespace

int measure_head(const BenchOptions& options, const train::FlagSet& flags) {
  const std::vector<tiling::RunTimeTiling> tilings{flags.is_given("tiling") ? cli::known_tiling(options.stack.tiling)
                                                                            : tiling::RunTimeTiling::tokens(1024)};
  const HeadSizes sizes{.tokens = options.seq_len > 0 ? options.seq_len : 4096,
                        .hidden = options.hidden,
                        .vocabulary = options.vocab > 0 ? options.vocab : 32000,
                        .threads = comm::planned_threads(options.launch.threads, 1)};
  if (options.stack.precision == cli::PrecisionChoice::bf16)
    measure<Bf16Mixed>(options, sizes, tilings);
  else
    measure<Fp32>(options, sizes, tilings);
  return 0;
}

}  // namespace fsdp::bench
