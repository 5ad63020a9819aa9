// SPDX-License-Identifier: Apache-2.0
/// @file
/// A block that is not a transformer block and declares its stages: x + out(causal mean(in(x))). The mean is over the
/// tokens so far, for each channel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/projection.hpp>
#include <tessera/fsdp/nn/stages.hpp>

namespace mixer {

namespace device = fsdp::device;
namespace nn = fsdp::nn;
using fsdp::Tensor;
using fsdp::Write;
using nn::HeadRange;

template <class V>
struct CausalMeanFields {
  V in, out;  // [C, H], [H, C]
};

/// The middle stage is divided by channels. Forward and backward run the stages with a single range.
template <class L>
struct CausalMean : nn::ModuleTypes<L, CausalMeanFields> {
  using Types = nn::ModuleTypes<L, CausalMeanFields>;
  using typename Types::Compute;
  using typename Types::Gradients;
  using typename Types::Parameters;
  using typename Types::Weights;
  using Shared = nn::Nothing;
  using Inputs = std::array<Tensor<Compute>, 1>;
  static constexpr std::size_t inputs = 1;

  std::int64_t hidden = 0;
  std::int64_t channels = 0;

  struct RowsSaved {
    Tensor<const Compute> x;  // [T, H]
  };
  struct HeadsSaved {};
  struct Saved {
    RowsSaved rows;
    HeadsSaved heads;
    Tensor<Compute> in, out;  // [T, C]
  };

  Parameters parameters() const { return {{"in.weight", {channels, hidden}}, {"out.weight", {hidden, channels}}}; }

  void forward(nn::Context<L>& context, const Shared& shared, const Weights& weights, Saved& saved,
               Tensor<const Compute> x, Tensor<Compute> y) const {
    saved.in = context.template save<Compute>({context.tokens(), channels});
    saved.out = context.template save<Compute>({context.tokens(), channels});
    before(context, shared, weights, saved.rows, x, nn::Part{.ranges = all()}, std::array<Inputs, 1>{Inputs{saved.in}});
    between(context, shared, weights, saved.heads, all()[0], Inputs{saved.in}, saved.out);
    after(context, shared, weights, saved.rows, x, all(), std::array{saved.out}, y);
  }
  void backward(nn::Context<L>& context, const Shared& shared, const Weights& weights, const Gradients& gradients,
                const Saved& saved, Tensor<Compute> dy) const {
    typename L::Frame frame(context.arena);
    const auto d = frame.template allocate<Compute>({context.tokens(), channels});  // [T, C]
    after_backward(context, shared, weights, gradients, saved.rows, all(), std::array{saved.out}, dy, std::array{d});
    between_backward(context, shared, weights, gradients, saved.heads, all()[0], Inputs{saved.in}, saved.out, d,
                     Inputs{d});
    before_backward(context, shared, weights, gradients, saved.rows, nn::Part{.ranges = all()},
                    std::array<Inputs, 1>{Inputs{d}}, dy);
  }

  std::int64_t shares() const { return channels; }
  std::array<std::int64_t, 1> input_columns(const HeadRange& range) const { return {range.size()}; }
  std::int64_t output_columns(const HeadRange& range) const { return range.size(); }

  void before(nn::Context<L>& rows, const Shared&, const Weights& weights, RowsSaved& saved, Tensor<const Compute> x,
              const nn::Part& part, std::span<const Inputs> in) const {
    saved.x = x;
    for (std::size_t i = 0; i < part.ranges.size(); ++i)
      nn::project<L, 1>(rows, x, {weights.in.slice(part.ranges[i].begin, part.ranges[i].end)}, in[i]);
  }
  void between(nn::Context<L>& all, const Shared&, const Weights&, HeadsSaved&, const HeadRange&, const Inputs& in,
               Tensor<Compute> out) const {
    each_sequence(all, [&](std::int64_t first, std::int64_t length) {
      for (std::int64_t c = 0; c < out.columns(); ++c) {
        double sum = 0;
        for (std::int64_t t = 0; t < length; ++t) {
          sum += static_cast<double>(in[0].row(first + t)[c]);
          out.row(first + t)[c] = Compute(static_cast<float>(sum / static_cast<double>(t + 1)));
        }
      }
    });
  }
  void after(nn::Context<L>& rows, const Shared&, const Weights& weights, RowsSaved&, Tensor<const Compute> x,
             std::span<const HeadRange> ranges, std::span<const Tensor<Compute>> outs, Tensor<Compute> y) const {
    device::enqueue(rows.stream, device::Copy<Compute>{.x = x, .y = y});
    for (std::size_t i = 0; i < ranges.size(); ++i)
      device::enqueue(rows.stream, device::Matmul<Compute>{.a = outs[i],
                                                           .b = device::transposed(columns(weights.out, ranges[i])),
                                                           .c = y,
                                                           .write = Write::accumulate});
  }
  void after_again(nn::Context<L>&, const Shared&, const Weights&, RowsSaved&, Tensor<const Compute>,
                   std::span<const HeadRange>, std::span<const Tensor<Compute>>) const {}

  void after_backward(nn::Context<L>& rows, const Shared&, const Weights& weights, const Gradients& gradients,
                      const RowsSaved&, std::span<const HeadRange> ranges, std::span<const Tensor<Compute>> outs,
                      Tensor<Compute> dy, std::span<const Tensor<Compute>> douts) const {
    nn::write_in_parts<L>(rows, gradients.out);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      nn::project_backward_weight<L, 1>(rows, {dy}, outs[i],
                                        {gradients.out.columns(ranges[i].begin, ranges[i].end, gradients.out.written)});
      device::enqueue(rows.stream,
                      device::Matmul<Compute>{.a = dy, .b = columns(weights.out, ranges[i]), .c = douts[i]});
    }
  }
  void between_backward(nn::Context<L>& all, const Shared&, const Weights&, const Gradients&, const HeadsSaved&,
                        const HeadRange&, const Inputs&, Tensor<const Compute>, Tensor<const Compute> dout,
                        const Inputs& din) const {
    each_sequence(all, [&](std::int64_t first, std::int64_t length) {
      for (std::int64_t c = 0; c < dout.columns(); ++c) {
        double sum = 0;
        for (std::int64_t t = length; t-- > 0;) {
          sum += static_cast<double>(dout.row(first + t)[c]) / static_cast<double>(t + 1);
          din[0].row(first + t)[c] = Compute(static_cast<float>(sum));
        }
      }
    });
  }
  void before_backward(nn::Context<L>& rows, const Shared&, const Weights& weights, const Gradients& gradients,
                       const RowsSaved& saved, const nn::Part& part, std::span<const Inputs> din,
                       Tensor<Compute> dy) const {
    nn::write_in_parts<L>(rows, gradients.in);
    for (std::size_t i = 0; i < part.ranges.size(); ++i) {
      const HeadRange& range = part.ranges[i];
      nn::project_backward_weight<L, 1>(rows, {din[i][0]}, saved.x,
                                        {gradients.in.rows(range.begin, range.end, gradients.in.written)});
      nn::project_backward_input<L, 1>(rows, din[i], {weights.in.slice(range.begin, range.end)}, dy, Write::accumulate);
    }
  }

 private:
  std::array<HeadRange, 1> all() const { return {HeadRange{0, channels}}; }
  static Tensor<const Compute> columns(Tensor<const Compute> weight, const HeadRange& range) {
    return weight.slice_columns(range.begin, range.end);
  }
  static_assert(L::Device::counts_only || (L::Device::host_memory && !L::Device::asynchronous),
                "mixer: the means are loops of the host; on a GPU they are an operation of yours, as in example 06");
  /// Calls body(first row, length) for each sequence.
  template <class Body>
  static void each_sequence(const nn::Context<L>& all, Body body) {
    for (std::int64_t i = 0; i < all.sequences && !L::Device::counts_only; ++i)
      body(i * all.sequence_length, all.sequence_length);
  }
};

}  // namespace mixer
