// SPDX-License-Identifier: Apache-2.0
// A user's own optimizer with a state of 8 bits: all that it needs is in this file.
#include <tessera/fsdp/testing/optimizer.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/optim/state.hpp>
#include <tessera/fsdp/precision/codec.hpp>

namespace mine {

using fsdp::Tensor;
using Codec = fsdp::Int8Blocks<64>;

/// Momentum whose state is encoded: a block at a time is decoded, stepped and encoded.
template <class Model>
struct CodedStep {
  static constexpr std::string_view name = "coded_momentum";

  Tensor<const fsdp::device::StepDecision> step = {};
  fsdp::device::MainWeights main = {};
  Tensor<std::byte> momentum = {};
  Tensor<const float> gradient = {};
  Tensor<Model> model = {};

  auto tensors() const { return std::tie(step, main, momentum, gradient, model); }
  fsdp::device::Cost cost() const {
    return {.bytes = 2 * main.bytes() + 2 * momentum.bytes() + gradient.bytes() + model.bytes()};
  }
};

template <class Model>
void run(fsdp::device::Cpu::Stream&, const CodedStep<Model>& op) {
  constexpr auto& format = fsdp::optim::state_format<Codec>;
  const fsdp::device::StepDecision& step = op.step[0];
  std::array<float, Codec::block> memory{};
  for (std::int64_t begin = 0; begin < op.main.numel(); begin += Codec::block) {
    const std::int64_t count = std::min(Codec::block, op.main.numel() - begin);
    const Tensor<float> momentum(memory.data(), {count});
    const Tensor<std::byte> bytes(op.momentum.data() + format.bytes(begin), {format.bytes(count)});
    float* const main = op.main.data() + begin;
    if (step.skipped == 0) {
      format.decode(bytes, momentum);
      for (std::int64_t i = 0; i < count; ++i) {
        momentum[i] = 0.9f * momentum[i] + step.gradient_scale * op.gradient.data()[begin + i];
        main[i] -= static_cast<float>(step.lr) * momentum[i];
      }
      format.encode(momentum, bytes);
    }
    if (op.model.numel() > 0)
      std::transform(main, main + count, op.model.data() + begin, [](float x) { return Model(x); });
  }
}

struct CodedMomentum {
  static constexpr std::string_view name() { return "coded_momentum"; }
  static constexpr fsdp::optim::Grain grain() { return fsdp::optim::Grain::elements; }
  std::span<const fsdp::optim::StateSpec> states(const fsdp::Parameter&) const {
    static constexpr std::array all = {fsdp::optim::StateSpec("momentum", fsdp::optim::state_format<Codec>)};
    return all;
  }
  template <class Stream, class Compute>
  void update(Stream& stream, const fsdp::optim::Update<Compute>& piece,
              Tensor<const fsdp::device::StepDecision> decision) const {
    fsdp::device::enqueue(stream, CodedStep<Compute>{.step = decision,
                                                     .main = piece.main,
                                                     .momentum = piece.states[0].bytes(),
                                                     .gradient = piece.gradient,
                                                     .model = piece.model});
  }
  template <class Self, class Visitor>
  static void visit(Self&, Visitor&&) {}
};

}  // namespace mine

namespace fsdp::testing {

INSTANTIATE_TYPED_TEST_SUITE_P(OwnCodedState, OptimizerSuite, mine::CodedMomentum);

}  // namespace fsdp::testing
