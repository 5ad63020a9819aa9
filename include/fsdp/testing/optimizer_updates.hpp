// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of an optimizer on pieces of single parameters, without a model and without ranks. A piece is in guarded
/// memory: it is surrounded by other numbers, and the gradient by NaN, which padding may contain.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/testing/guarded.hpp>
#include <tessera/fsdp/testing/module_run.hpp>
#include <tessera/fsdp/testing/queued/queued_cpu.hpp>
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

/// Checks the names of the optimizer and its states.
template <class O>
void check_optimizer_names(const O& optimizer) {
  const O copy = optimizer;
  constexpr std::string_view asked =
      "an optimizer and its copies have one name, and the same different names for the states of a parameter, by which "
      "checkpoints hold them";
  if (std::string_view(optimizer.name()).empty() || optimizer.name() != copy.name())
    return void(fail(asked, "name()", message("\"", optimizer.name(), "\", and of a copy \"", copy.name(), "\"")));
  for (const Parameter& parameter : stepped_parameters()) {
    const auto list = [&](const O& from) {
      std::vector<std::string> names;
      for (const std::string_view name : from.states(parameter)) names.emplace_back(name);
      return names;
    };
    const std::vector<std::string> names = list(optimizer);
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    const std::string where = message("states of ", detail::words_of(parameter));
    if (names != list(copy) || names != list(optimizer)) return void(fail(asked, where, "they change: " + all));
    if (std::set<std::string>(names.begin(), names.end()).size() != names.size() ||
        std::ranges::count(names, std::string()) > 0)
      return void(fail(asked, where, message("\"", all, "\"")));
  }
}

/// Checks taken steps and skipped steps.
template <class Compute, class O>
void check_optimizer_steps(const O& optimizer) {
  for (const Parameter& parameter : stepped_parameters())
    for (const int threads : {1, 3}) {
      TestRank<device::Cpu> rank(threads, detail::update_arena_bytes);
      detail::OptimizerPiece<Compute> piece(parameter, optimizer.states(parameter).size());
      const auto before = piece.main();
      for (int taken = 1; taken <= 3; ++taken) {
        const std::string where = message(detail::words_of(parameter), " in ", detail::compute_name<Compute>, ", step ",
                                          taken, ", ", threads == 1 ? "one thread" : "three threads");
        piece.set_gradient(taken);
        piece.forget_model();
        const auto gradient = piece.gradient();
        const device::StepDecision decision = detail::decided(taken);
        piece.step(optimizer, rank.stream, decision);
        if (!piece.expect_untouched(where) || !piece.expect_model(where) ||
            !expect_values("an update reads its gradient and leaves it as it is", where, "gradient", piece.gradient(),
                           gradient))
          return;
        for (const float value : piece.main())
          if (!std::isfinite(value))
            return void(fail("finite weights, states that began as zeros and finite gradients give finite weights",
                             where, message("a weight is ", in_words(value))));

        const auto stepped = piece.values();
        constexpr std::string_view skipped = "a skipped step changes nothing but `model`, whatever its gradient is";
        piece.set_gradient_to_nan();
        piece.forget_model();
        const device::StepDecision skip{.taken = taken, .lr = 0.5, .skipped = 1};
        piece.step(optimizer, rank.stream, skip);
        if (!detail::expect_same_values(skipped, where, piece.values(), stepped) || !piece.expect_untouched(where) ||
            !piece.expect_model(where))
          return;
      }
      if (piece.main() == before)
        return void(fail("three steps with a gradient and a learning rate change weights", detail::words_of(parameter),
                         "no weight has changed"));
    }
}

/// Checks that an update of pieces has the result of an update of the whole parameter, wherever it is cut, and that the
/// update of a whole tensor does not depend on its place in memory.
template <class O>
void check_optimizer_cuts(const O& optimizer) {
  const bool cuts = optimizer.grain() == optim::Grain::elements;
  const std::string_view asked =
      cuts ? "with Grain::elements every element is stepped alone: pieces of a parameter, and any number of threads, "
             "give the bits of the parameter stepped whole"
           : "the same update of the same whole parameter gives the same bits";
  for (const Parameter& parameter : stepped_parameters()) {
    const std::size_t states = optimizer.states(parameter).size();
    const std::int64_t count = parameter.shape.numel();
    detail::OptimizerPiece<bf16> whole(parameter, states);
    detail::take_steps(optimizer, whole, 1);
    detail::OptimizerPiece<bf16> again(parameter, states);
    detail::take_steps(optimizer, again, cuts ? 3 : 1);
    const std::string name = detail::words_of(parameter);
    if (!detail::expect_same_piece(asked, message(name, cuts ? ", whole, 3 threads" : ", once more"), again, whole))
      return;
    if (!cuts) continue;
    for (const std::int64_t length : {std::int64_t{1}, std::int64_t{5}, std::int64_t{17}, count / 2, count - 1}) {
      if (length < 1 || length >= count || count / length > 200) continue;
      for (std::int64_t begin = 0; begin < count; begin += length) {
        const std::int64_t end = std::min(begin + length, count);
        detail::OptimizerPiece<bf16> piece(parameter, states, begin, end);
        detail::take_steps(optimizer, piece, 1);
        const std::string where = message(name, ", elements [", begin, ", ", end, ") as a piece");
        if (!detail::expect_same_piece(asked, where, piece, whole, begin)) return;
      }
    }
  }
}

/// Checks that the decision's gradient scale is applied.
template <class O>
void check_optimizer_scale(const O& optimizer) {
  constexpr std::string_view asked =
      "the gradient of a step is `gradient` times `decision.gradient_scale`: four times the gradient and a quarter of "
      "the scale give the same bits";
  for (const Parameter& parameter : stepped_parameters()) {
    const std::size_t states = optimizer.states(parameter).size();
    detail::OptimizerPiece<float> found(parameter, states), expected(parameter, states);
    detail::take_steps(optimizer, found, 1, 4);
    detail::take_steps(optimizer, expected, 1);
    if (!detail::expect_same_piece(asked, detail::words_of(parameter), found, expected)) return;
  }
}

namespace detail {

/// The cost of the updates of one parameter on a device: FLOPs, bytes, scratch.
struct OptimizerCounts {
  std::int64_t flops = 0, bytes = 0, peak = 0, scratch = 0;
};

template <class Device, class Compute, class O>
OptimizerCounts counts_of(const O& optimizer, const Parameter& parameter, typename Device::Arena arena,
                          const device::StepDecision& decision) {
  typename Device::Stream stream(arena, 2);
  OptimizerPiece<Compute> piece(parameter, optimizer.states(parameter).size());
  piece.set_gradient(1);
  piece.step(optimizer, stream, decision);
  return {stream.counters.matmul_flops, stream.counters.elementwise_bytes, arena.peak(), arena.peak_scratch()};
}

inline bool expect_counts(std::string_view asked, std::string_view where, const OptimizerCounts& found,
                          const OptimizerCounts& expected) {
  return expect_value(asked, where, "the number of FLOPs of matmuls", found.flops, expected.flops) &&
         expect_value(asked, where, "the number of bytes that are moved", found.bytes, expected.bytes) &&
         expect_value(asked, where, "the arena's peak in bytes", found.peak, expected.peak) &&
         expect_value(asked, where, "the scratch at its peak in bytes", found.scratch, expected.scratch);
}

}  // namespace detail

/// Checks that dry runs count the same costs as the CPU.
template <class O>
void check_optimizer_counts(const O& optimizer) {
  using device::Cpu;
  using device::Meta;
  const auto check = [&]<class Compute>(Compute, const Parameter& parameter) {
    const std::string where = message(detail::words_of(parameter), " in ", detail::compute_name<Compute>);
    const auto on_cpu = [&](const device::StepDecision& decision) {
      device::Ledger ledger;
      return detail::counts_of<Cpu, Compute>(optimizer, parameter, Cpu::Arena(ledger, 1 << 22), decision);
    };
    const detail::OptimizerCounts found = on_cpu(detail::decided(1));
    return detail::expect_counts(
               "a dry run counts of an update, on device::Meta, what it is on the CPU", where,
               detail::counts_of<Meta, Compute>(optimizer, parameter, Meta::Arena::unbounded(), detail::decided(1)),
               found) &&
           detail::expect_counts("an update enqueues the same work in every step", message(where, ", in step 1000"),
                                 on_cpu({.taken = 1000, .lr = 1e-3}), found) &&
           detail::expect_counts("an update enqueues the same work in every step, skipped steps among them", where,
                                 on_cpu({.taken = 1, .skipped = 1}), found);
  };
  for (const Parameter& parameter : stepped_parameters())
    if (!check(float{}, parameter) || !check(bf16{}, parameter)) return;
}

/// Checks that a step can be captured once as a graph and replayed for every step.
template <class O>
void check_optimizer_replays(const O& optimizer) {
  constexpr std::string_view asked =
      "an update reads the decision on the device and enqueues the same work in every step: work that was captured in "
      "one step and is launched in others steps as updates of their own do";
  for (const Parameter& parameter : stepped_parameters()) {
    const std::size_t states = optimizer.states(parameter).size();
    const std::vector<device::StepDecision> decisions = {
        detail::decided(1), detail::decided(2), {.taken = 2, .lr = 0.3, .skipped = 1}, detail::decided(3)};
    detail::OptimizerPiece<float> expected(parameter, states), found(parameter, states);
    TestRank<device::Cpu> rank(1, detail::update_arena_bytes);
    const O stepping = optimizer;  // reveals state that the optimizer stores in itself
    for (std::size_t step = 0; step < decisions.size(); ++step) {
      expected.set_gradient(static_cast<int>(step));
      expected.step(stepping, rank.stream, decisions[step]);
    }
    device::Ledger ledger;
    QueuedCpu::Arena arena(ledger, 1 << 22);
    QueuedCpu::Stream stream(arena, 1);
    device::StepDecision decision = decisions[0];
    const auto graph = QueuedCpu::capture(stream, [&] { found.step(optimizer, stream, decision); });
    for (std::size_t step = 0; step < decisions.size(); ++step) {
      decision = decisions[step];
      found.set_gradient(static_cast<int>(step));
      graph.launch(stream);
      stream.synchronize();
    }
    if (!detail::expect_same_piece(asked, detail::words_of(parameter), found, expected)) return;
  }
}

}  // namespace fsdp::testing
