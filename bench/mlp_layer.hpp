// SPDX-License-Identifier: Apache-2.0
/// @file
/// The SwiGLU MLP of `tessera_bench mlp`: operands in the layout of a slot of unsharded weights, and the module that
/// uses them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/nn/swiglu_mlp.hpp>

#include "../src/program/calibrate/computations.hpp"

namespace fsdp::bench {

using calibrate::fill_uniform;

/// Sizes of an MLP, and the number of threads of a rank.
struct MlpSizes {
  std::int64_t tokens = 0, hidden = 0, intermediate = 0;
  int threads = 1;
};

/// x [S, H], y and dy [S, H], weights [3, I, H] and their gradients, in the layout of a slot of unsharded weights. All
/// zero if the host cannot write them.
template <class Device, class Compute>
struct MlpOperands {
  MlpOperands(device::Ledger& ledger, const MlpSizes& sizes)
      : sizes(sizes),
        streams(ledger, device::MemoryKind::activations, 3 * stream_size() * element),
        weights(ledger, device::MemoryKind::gathered, 3 * weight_size() * element),
        gradients(ledger, device::MemoryKind::gradients, 3 * weight_size() * std::int64_t{sizeof(float)}) {
    if constexpr (!Device::counts_only && Device::host_memory) {
      fill_uniform(Tensor<Compute>(reinterpret_cast<Compute*>(streams.data()), {3 * stream_size()}), 1.0f);
      fill_uniform(Tensor<Compute>(reinterpret_cast<Compute*>(weights.data()), {3 * weight_size()}), 0.05f);
    }
  }
  static constexpr auto element = std::int64_t{sizeof(Compute)};
  std::int64_t stream_size() const { return sizes.tokens * sizes.hidden; }
  std::int64_t weight_size() const { return sizes.intermediate * sizes.hidden; }

  Tensor<Compute> stream(int index) const {
    return {reinterpret_cast<Compute*>(streams.data()) + index * stream_size(), {sizes.tokens, sizes.hidden}};
  }
  Tensor<Compute> x() const { return stream(0); }
  Tensor<Compute> y() const { return stream(1); }
  Tensor<Compute> dy() const { return stream(2); }
  /// Returns `count` of the weights, starting at number `index`, as one matrix; down is [H, I].
  template <class T>
  Tensor<T> matrices(const device::Block<Device>& block, int index, int count) const {
    T* const data = reinterpret_cast<T*>(block.data()) + index * weight_size();
    return index == 2 ? Tensor<T>(data, {sizes.hidden, sizes.intermediate})
                      : Tensor<T>(data, {count * sizes.intermediate, sizes.hidden});
  }
  Tensor<const Compute> weight(int index, int count = 1) const { return matrices<Compute>(weights, index, count); }
  Tensor<float> gradient(int index, int count = 1) const { return matrices<float>(gradients, index, count); }

  std::int64_t bytes() const { return streams.bytes() + weights.bytes() + gradients.bytes(); }

  MlpSizes sizes;
  device::Block<Device> streams, weights, gradients;
};

/// The module with one tiling, and its activations; on Meta it only counts memory. Several layers may share operands.
template <class L>
class MlpLayer {
 public:
  using Device = typename L::Device;
  using Module = nn::SwiGluMlp<L>;
  using Arena = typename Device::Arena;
  using Operands = MlpOperands<Device, typename L::Compute>;

  /// On Meta `arena_bytes` is ignored.
  MlpLayer(const Operands& operands, std::shared_ptr<nn::TilePlans> plans, std::int64_t arena_bytes)
      : operands_(operands),
        module_{{}, operands.sizes.hidden, operands.sizes.intermediate},
        arena_(Arena::planned(ledger_, arena_bytes)),
        stream_(arena_, operands.sizes.threads),
        context_{
            .arena = arena_, .stream = stream_, .plans = std::move(plans), .sequence_length = operands.sizes.tokens} {}
  MlpLayer(const MlpLayer&) = delete;
  MlpLayer& operator=(const MlpLayer&) = delete;

  /// Restores dy, which backward has overwritten with dx.
  void restore() { fill_uniform(operands_.dy(), 1.0f); }
  void forward() {
    mark_ = arena_.mark(Arena::End::low);
    module_.forward(context_, weights(), saved_, operands_.x(), operands_.y());
  }
  void backward() {
    std::fill(std::begin(written_), std::end(written_), false);
    const typename Module::Gradients gradients{{operands_.gradient(0), &written_[0]},
                                               {operands_.gradient(1), &written_[1]},
                                               {operands_.gradient(2), &written_[2]}};
    module_.backward(context_, weights(), gradients, saved_, operands_.dy());
    arena_.release(Arena::End::low, mark_);
  }

  typename Device::Stream& stream() { return stream_; }
  tiling::TilePlan plan() { return nn::plan_of(context_, module_); }
  std::int64_t arena_peak() const { return arena_.peak(); }
  std::int64_t matmul_flops() const { return stream_.counters.matmul_flops; }

 private:
  typename Module::Weights weights() const { return {operands_.weight(0), operands_.weight(1), operands_.weight(2)}; }

  const Operands& operands_;
  Module module_;
  device::Ledger ledger_;
  Arena arena_;
  typename Device::Stream stream_;
  nn::Context<L> context_;
  typename Module::Saved saved_;
  typename Arena::Mark mark_;
  bool written_[3] = {};
};

/// Returns the bytes of the arena that forward and backward need. Determined by a dry run, which also adds the layer's
/// plan to the tile plans.
template <class PrecisionT, class Device = device::Cpu>
std::int64_t planned_arena(const MlpSizes& sizes, const std::shared_ptr<nn::TilePlans>& plans) {
  device::Ledger ledger;
  using Meta = device::MetaFor<Device>;
  const MlpOperands<Meta, typename PrecisionT::Compute> operands(ledger, sizes);
  MlpLayer<nn::Local<Meta, PrecisionT>> layer(operands, plans, 0);
  layer.forward();
  layer.backward();
  return layer.arena_peak();
}

}  // namespace fsdp::bench
