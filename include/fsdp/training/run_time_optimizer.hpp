// SPDX-License-Identifier: Apache-2.0
/// @file
/// Muon: momentum orthogonalised by Newton-Schulz for matrices, AdamW for embedding tables and vectors; and an
/// optimizer that is chosen at run time, for example by `--optimizer`. The latter's updates on the CPU, and those of
/// dry runs for the CPU, are compiled into the library.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>

namespace fsdp::optim {

/// A matrix's update is its momentum with all singular values brought near 1, times 0.2 sqrt(max(rows, columns)), so
/// that matrices and AdamW can share one learning rate. Newton-Schulz iterates x = a x + (b A + c A A) x, A = x x^T, in
/// `Compute`. Muon needs each matrix whole on the rank that steps it or, with `per_head`, each head of it.
/// buffer::Owned and buffer::Blocks place matrices this way, and Blocks also heads, so that no further collective is
/// needed. Source: Jordan et al. 2024 (Muon, its coefficients); the scale of the update is from Liu et al. 2025 (Muon
/// is scalable).
struct Muon {
  double momentum = 0.95;       ///< decay of the sum of gradients
  bool nesterov = true;         ///< whether to use Nesterov momentum
  std::int64_t iterations = 5;  ///< number of Newton-Schulz iterations
  /// Whether the rows of each head are one matrix: in a parameter whose block (Parameter::block) consists of whole
  /// rows, which in this library's models are the projections to queries, keys and values. Other matrices, and all
  /// matrices of a model that states no blocks, stay whole.
  bool per_head = false;
  AdamW adamw = {};  ///< for all parameters but linear layers' matrices; its weight decay applies to these too

  static constexpr std::string_view name() { return "muon"; }
  static constexpr Grain grain() { return Grain::tensors; }
  static constexpr bool reads_decay = true;  ///< from Parameter::decay_of

  /// Whether a parameter's momentum is orthogonalised; AdamW steps all other parameters, including parameters of any
  /// role with fewer than two axes or no elements.
  static bool is_matrix(const Parameter& parameter) {
    return parameter.role == Role::matrix && parameter.shape.rank >= 2 && parameter.shape.numel() > 0;
  }
  /// Returns a tensor's shape as a matrix: [first extent, product of the others], as for a convolution's kernel.
  static Shape matrix_of(const Shape& shape) { return {shape[0], shape.numel() / shape[0]}; }
  /// Returns the number of elements that are orthogonalised together: a parameter's, or a head's; 0 for parameters that
  /// AdamW steps.
  std::int64_t block(const Parameter& parameter) const;

  /// Returns the FLOPs of Newton-Schulz on a parameter's matrices; Owned balances them over ranks. For other parameters
  /// it returns the number of elements. That is negligible, so the layout's bound on bytes distributes them.
  std::int64_t work(const Parameter& parameter) const;

  std::span<const StateSpec> states(const Parameter& parameter) const {
    static constexpr std::array<StateSpec, 1> of_matrix = {"momentum"};
    return is_matrix(parameter) ? std::span<const StateSpec>(of_matrix) : adamw.states(parameter);
  }

  template <class Stream, class Compute>
  void update(Stream& stream, const Update<Compute>& piece, Tensor<const device::StepDecision> decision) const {
    if (!is_matrix(piece.parameter)) return adamw.update(stream, piece, decision);
    const std::int64_t elements = block(piece.parameter), columns = matrix_of(piece.parameter.shape)[1];
    for (std::int64_t begin = 0; begin < piece.main.numel(); begin += elements)
      update_matrix(stream, piece, begin, {elements / columns, columns}, decision);
  }

  void validate() const;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("momentum", self.momentum, "decay of the sum of gradients");
    visitor("nesterov", self.nesterov, "look ahead along the momentum");
    visitor("iterations", self.iterations, "of Newton-Schulz, for matrices");
    visitor("per-head", self.per_head, "a matrix per attention head of q, k and v");
    AdamW::visit(self.adamw, visitor);
  }

  friend bool operator==(const Muon&, const Muon&) = default;

 private:
  /// Steps the matrix of `shape` [R, C] that begins at element `begin` of the piece.
  template <class Stream, class Compute>
  void update_matrix(Stream& stream, const Update<Compute>& piece, std::int64_t begin, const Shape& shape,
                     Tensor<const device::StepDecision> decision) const {
    using Frame = typename std::remove_reference_t<decltype(stream.arena())>::Frame;
    constexpr auto scratch = device::MemoryKind::scratch;
    const auto matrix = [&]<class T>(const Tensor<T>& tensor) {
      return tensor.numel() == 0 ? tensor : Tensor<T>(tensor.data() + begin, shape);
    };
    Frame frame(stream.arena());
    const auto x = frame.template allocate<Compute>(shape, scratch);  // [R, C]
    {
      Frame momentum_frame(stream.arena());
      const auto direction = momentum_frame.template allocate<float>(shape, scratch);  // [R, C]
      const auto squares = momentum_frame.template allocate<double>({1}, scratch);
      device::enqueue(stream, device::MomentumDirection{.momentum = static_cast<float>(momentum),
                                                        .nesterov = nesterov,
                                                        .step = decision,
                                                        .gradient = matrix(piece.gradient),
                                                        .state = matrix(Tensor<float>(piece.states[0])),
                                                        .direction = direction});
      device::enqueue(stream, device::Fill<double>{.y = squares, .value = 0});
      device::enqueue(stream, device::SumOfSquares{.x = direction, .sum = squares});
      device::enqueue(stream, device::Normalized<Compute>{.x = direction, .squares = squares, .y = x});
    }
    orthogonalize(stream, x);
    const auto longer = static_cast<double>(std::max(shape[0], shape[1]));
    device::enqueue(stream, device::DirectionStep<Compute>{
                                .weight_decay = static_cast<float>(piece.parameter.decay_of(adamw.weight_decay)),
                                .scale = static_cast<float>(0.2 * std::sqrt(longer)),
                                .step = decision,
                                .direction = x,
                                .main = matrix(piece.main),
                                .model = matrix(piece.model)});
  }

  /// Makes x [R, C], of norm 1, nearly orthogonal in place. The resulting singular values are between 0.7 and 1.2.
  template <class Stream, class Compute>
  void orthogonalize(Stream& stream, Tensor<Compute> x) const {
    using Frame = typename std::remove_reference_t<decltype(stream.arena())>::Frame;
    using Operand = device::Operand<Compute>;
    constexpr float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    const bool wide = x.rows() <= x.columns();
    const std::int64_t small = std::min(x.rows(), x.columns());
    Frame frame(stream.arena());
    const auto allocate = [&](const Shape& shape) {
      return frame.template allocate<Compute>(shape, device::MemoryKind::scratch);
    };
    const Tensor<Compute> gram = allocate({small, small}), square = allocate({small, small}), y = allocate(x.shape());
    const auto multiply = [&](const Operand& left, const Operand& right, Tensor<Compute> product) {
      device::enqueue(stream, device::Matmul<Compute, Compute>{.a = left, .b = right, .c = product});
    };
    for (std::int64_t i = 0; i < iterations; ++i) {
      wide ? multiply(x, device::transposed(x), gram) : multiply(device::transposed(x), x, gram);
      multiply(gram, gram, square);
      device::enqueue(stream, device::Combination<Compute>{.alpha = b, .x = gram, .beta = c, .y = square});
      wide ? multiply(square, x, y) : multiply(x, square, y);
      device::enqueue(stream, device::Combination<Compute>{.alpha = 1, .x = y, .beta = a, .y = x});
    }
  }
};

/// One of the library's optimizers. To add one, add its type here.
struct RunTimeOptimizer {
  std::variant<AdamW, Sgd, Muon> kind = AdamW{};  ///< the selected optimizer with its constants

  static constexpr bool reads_decay = true;  ///< all of them do, from Parameter::decay_of

  std::string_view name() const;
  Grain grain() const;
  std::span<const StateSpec> states(const Parameter& parameter) const;

  template <class Stream, class Compute>
  void update(Stream& stream, const Update<Compute>& piece, Tensor<const device::StepDecision> decision) const;

  void validate() const;
  /// Returns what layouts use of the selected optimizer.
  StepWork step_work() const;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor);

  friend bool operator==(const RunTimeOptimizer&, const RunTimeOptimizer&) = default;
};

template <class Stream, class Compute>
void RunTimeOptimizer::update(Stream& stream, const Update<Compute>& piece,
                              Tensor<const device::StepDecision> decision) const {
  std::visit([&](const auto& optimizer) { optimizer.update(stream, piece, decision); }, kind);
}

template <class Self, class Visitor>
void RunTimeOptimizer::visit(Self& self, Visitor&& visitor) {
  std::visit([&]<class O>(O& optimizer) { O::visit(optimizer, visitor); }, self.kind);
}
extern template void RunTimeOptimizer::visit(RunTimeOptimizer&, ValueList&);

/// An update that is compiled into the library; `how` is `extern template` or `template`.
#define FSDP_RUN_TIME_UPDATE(how, Stream, Compute) \
  how void RunTimeOptimizer::update(Stream&, const Update<Compute>&, Tensor<const device::StepDecision>) const;

FSDP_RUN_TIME_UPDATE(extern template, device::Cpu::Stream, float)
FSDP_RUN_TIME_UPDATE(extern template, device::Cpu::Stream, bf16)
FSDP_RUN_TIME_UPDATE(extern template, device::Meta::Stream, float)
FSDP_RUN_TIME_UPDATE(extern template, device::Meta::Stream, bf16)

}  // namespace fsdp::optim
