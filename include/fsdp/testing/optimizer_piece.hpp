// SPDX-License-Identifier: Apache-2.0
/// @file
/// A piece of a parameter, as an optimizer's update receives it, in guarded memory. It is surrounded by other numbers,
/// and the gradient by NaN, which padding may contain.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/testing/guarded.hpp>
#include <tessera/fsdp/testing/module_memory.hpp>
#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::testing {

/// Returns parameters of every role, with odd sizes. The last one is large enough for a thread team.
inline const std::vector<Parameter>& stepped_parameters() {
  static const std::vector<Parameter> list = {
      {.name = "a.matrix", .shape = {37, 19}},
      {.name = "a.table", .shape = {23, 7}, .role = nn::Role::table},
      {.name = "a.norm", .shape = {41}},
      {.name = "a.number", .shape = {1}},
      {.name = "a.large.matrix", .shape = {129, 161}},
  };
  return list;
}

namespace detail {

inline std::string words_of(const Parameter& parameter) {
  constexpr std::string_view roles[] = {"a linear layer's matrix", "a table", "a vector"};
  return message("parameter ", in_words(parameter.shape), ", ", roles[static_cast<int>(parameter.role)]);
}

/// Elements [begin, end) of a parameter, as one update receives them.
template <class Compute>
class OptimizerPiece {
 public:
  static constexpr bool has_model = !std::is_same_v<Compute, float>;

  OptimizerPiece(const Parameter& parameter, std::size_t states, std::int64_t begin, std::int64_t end)
      : parameter_(&parameter), begin_(begin) {
    const Shape shape = end - begin == parameter.shape.numel() ? parameter.shape : Shape{end - begin};
    main_ = {shape, 77.0f};
    main_.set([&](std::int64_t i) { return static_cast<float>(number_at(1, begin + i)); });
    gradient_ = {shape, std::numeric_limits<float>::quiet_NaN()};
    if constexpr (has_model) model_ = {shape, Compute(55.0f)};
    for (std::size_t state = 0; state < states; ++state) {
      states_.emplace_back(shape, 33.0f);
      states_.back().set([](std::int64_t) { return 0.0f; });
    }
  }
  explicit OptimizerPiece(const Parameter& parameter, std::size_t states)
      : OptimizerPiece(parameter, states, 0, parameter.shape.numel()) {}

  /// Sets the gradient of step `number`, multiplied by `factor`. Gradients differ between steps, and between elements
  /// by factors of thousands.
  void set_gradient(int number, float factor = 1) {
    gradient_.set([&](std::int64_t i) {
      const double value = number_at(static_cast<std::uint64_t>(10 + number), begin_ + i);
      return factor * static_cast<float>(value * std::pow(2.0, static_cast<double>((begin_ + i) % 13) - 8));
    });
  }
  void set_gradient_to_nan() {
    gradient_.set([](std::int64_t) { return std::numeric_limits<float>::quiet_NaN(); });
  }
  void forget_model() {
    if constexpr (has_model) model_.set([](std::int64_t) { return Compute(55.0f); });
  }

  template <class O, class Stream>
  void step(const O& optimizer, Stream& stream, const device::StepDecision& decision) {
    std::vector<Tensor<float>> states;
    for (auto& state : states_) states.push_back(state.view());
    Tensor<Compute> model;
    if constexpr (has_model) model = model_.view();
    optimizer.update(stream,
                     optim::Update<Compute>{.parameter = *parameter_,
                                            .main = main_.view(),
                                            .states = states,
                                            .gradient = gradient_.view(),
                                            .model = model},
                     Tensor<const device::StepDecision>(&decision, {1}));
  }

  std::vector<float> main() const { return main_.values(); }
  std::vector<float> gradient() const { return gradient_.values(); }
  std::vector<Compute> model() const { return has_model ? model_.values() : std::vector<Compute>(); }
  /// Returns the values that a step changes: the main weights and the states.
  std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> list{main()};
    for (const auto& state : states_) list.push_back(state.values());
    return list;
  }

  /// Checks that memory around the piece is unchanged.
  bool expect_untouched(std::string_view where) const {
    constexpr std::string_view asked =
        "an update writes the elements of its piece alone: memory beside it is another piece's, or padding";
    bool good = true;
    const auto expect = [&](std::string_view which, const auto& memory) {
      const std::string touched = memory.touched();
      if (!touched.empty()) good = fail(asked, where, message(which, ": ", touched));
    };
    expect("main", main_);
    for (const auto& state : states_) expect("a state", state);
    if constexpr (has_model) expect("model", model_);
    expect("the gradient", gradient_);
    return good;
  }
  /// Checks that `model` equals `main` after one rounding.
  bool expect_model(std::string_view where) const {
    if constexpr (has_model) {
      std::vector<Compute> expected;
      for (const float value : main()) expected.push_back(Compute(value));
      return expect_values("after an update `model` holds `main`, rounded, also where the step was skipped", where,
                           "model", model(), expected);
    }
    return true;
  }

 private:
  const Parameter* parameter_;
  std::int64_t begin_ = 0;
  Guarded<float> main_, gradient_;
  std::vector<Guarded<float>> states_;
  Guarded<Compute> model_;
};

/// Returns the decision of a taken step that the checks use.
inline device::StepDecision decided(int taken) {
  return {.taken = taken, .lr = 0.01 * (taken + 1), .gradient_scale = taken == 2 ? 0.25f : 1.0f};
}

inline constexpr std::int64_t update_arena_bytes = std::int64_t{4} << 20;

/// Runs three steps on a piece. Its gradients are `factor` times the usual ones, and the update scales them back.
template <class O, class Compute>
void take_steps(const O& optimizer, OptimizerPiece<Compute>& piece, int threads, float factor = 1) {
  TestRank<device::Cpu> rank(threads, update_arena_bytes);
  for (int taken = 1; taken <= 3; ++taken) {
    piece.set_gradient(taken, factor);
    device::StepDecision decision = decided(taken);
    decision.gradient_scale /= factor;
    piece.step(optimizer, rank.stream, decision);
  }
}

/// Compares the main weights and states of a piece with the elements of another piece that begin at `begin`.
inline bool expect_same_values(std::string_view asked, std::string_view where,
                               const std::vector<std::vector<float>>& found,
                               const std::vector<std::vector<float>>& expected, std::int64_t begin = 0) {
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!expect_values(asked, where, i == 0 ? "main" : message("state ", i - 1), found[i],
                       std::span(expected[i]).subspan(static_cast<std::size_t>(begin), found[i].size())))
      return false;
  return true;
}

/// Compares a piece with the elements of another piece that begin at `begin`.
template <class Compute>
bool expect_same_piece(std::string_view asked, std::string_view where, const OptimizerPiece<Compute>& found,
                       const OptimizerPiece<Compute>& expected, std::int64_t begin = 0) {
  const std::vector<Compute> model = found.model(), all = expected.model();
  return expect_same_values(asked, where, found.values(), expected.values(), begin) &&
         expect_values(asked, where, "model", model,
                       std::span(all).subspan(all.empty() ? 0 : static_cast<std::size_t>(begin), model.size()));
}

template <class Compute>
inline constexpr std::string_view compute_name = name_of(dtype_of<Compute>());

}  // namespace detail

}  // namespace fsdp::testing
