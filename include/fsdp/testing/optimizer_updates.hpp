// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of an optimizer on pieces of single parameters, without a model and without ranks. A piece is in guarded
/// memory: it is surrounded by other numbers, and the gradient by NaN, which padding may contain.
#pragma once

#include <algorithm>
#include <array>
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
      {.name = "a.matrix.of.heads", .shape = {24, 19}, .block = 8 * 19},
  };
  return list;
}

namespace detail {

inline std::string words_of(const Parameter& parameter) {
  constexpr std::string_view roles[] = {"a linear layer's matrix", "a table", "a vector"};
  return message("parameter ", in_words(parameter.shape), ", ", roles[static_cast<int>(parameter.role)]);
}

template <class Compute>
inline constexpr std::string_view compute_name = name_of(dtype_of<Compute>());

/// Returns the decision of a taken step that the checks use.
inline device::StepDecision decided(int taken) {
  return {.taken = taken, .lr = 0.01 * (taken + 1), .gradient_scale = taken == 2 ? 0.25f : 1.0f};
}

inline constexpr std::int64_t update_arena_bytes = std::int64_t{4} << 20;

/// Elements [begin, end) of a parameter, as one update of the optimizer receives them.
template <class Compute, class O>
class OptimizerPiece {
 public:
  static constexpr bool has_model = !std::is_same_v<Compute, float>;

  OptimizerPiece(const O& optimizer, const Parameter& parameter, std::int64_t begin, std::int64_t end)
      : optimizer_(&optimizer), parameter_(&parameter), begin_(begin) {
    const Shape shape = end - begin == parameter.shape.numel() ? parameter.shape : Shape{end - begin};
    main_ = {shape, 77.0f};
    main_.set([&](std::int64_t i) { return static_cast<float>(number_at(1, begin + i)); });
    gradient_ = {shape, std::numeric_limits<float>::quiet_NaN()};
    if constexpr (has_model) model_ = {shape, Compute(55.0f)};
    const auto specs = optimizer.states(parameter);
    states_.reserve(specs.size());  // a copy would not be aligned
    for (const optim::StateSpec& spec : specs) {
      const std::int64_t words = optim::resting_bytes(spec, shape.numel()) / std::int64_t{sizeof(float)};
      states_.emplace_back(Shape{words}, 33.0f).set([](std::int64_t) { return 0.0f; });
      formats_.push_back(spec.format);
    }
  }
  OptimizerPiece(const O& optimizer, const Parameter& parameter)
      : OptimizerPiece(optimizer, parameter, 0, parameter.shape.numel()) {}

  /// Sets the gradient of step `number`, multiplied by `factor`. Gradients differ between steps, and between elements
  /// by factors of thousands.
  void set_gradient(int number, float factor = 1) {
    gradient_.set([&](std::int64_t i) {
      const double value = number_at(static_cast<std::uint64_t>(10 + number), begin_ + i);
      return factor * static_cast<float>(value * std::pow(2.0, static_cast<double>((begin_ + i) % 13) - 8));
    });
  }

  void step(auto& stream, const device::StepDecision& decision) {
    std::vector<optim::State> states;
    for (std::size_t i = 0; i < states_.size(); ++i)
      states.emplace_back(reinterpret_cast<std::byte*>(states_[i].view().data()), main_.shape(), *formats_[i]);
    Tensor<Compute> model;
    if constexpr (has_model) model = model_.view();
    optimizer_->update(stream,
                       optim::Update<Compute>{.parameter = *parameter_,
                                              .main = main_.view(),
                                              .states = states,
                                              .gradient = gradient_.view(),
                                              .model = model,
                                              .first = begin_},
                       Tensor<const device::StepDecision>(&decision, {1}));
  }
  /// Makes a step, and checks that it changes no memory around the piece, and that `model` equals `main` after one
  /// rounding.
  bool expect_step(std::string_view where, auto& stream, const device::StepDecision& decision) {
    if constexpr (has_model) model_.set([](std::int64_t) { return Compute(55.0f); });
    step(stream, decision);
    bool good = true;
    const auto expect = [&](std::string_view which, const auto& memory) {
      const std::string touched = memory.touched();
      if (!touched.empty())
        good = fail("an update writes the elements of its piece alone: memory beside it is another piece's, or padding",
                    where, which, ": ", touched);
    };
    expect("main", main_);
    for (const auto& state : states_) expect("a state", state);
    if constexpr (has_model) expect("model", model_);
    expect("the gradient", gradient_);
    if constexpr (has_model) {
      std::vector<Compute> expected;
      for (const float value : main()) expected.push_back(Compute(value));
      good = good && expect_values("after an update `model` holds `main`, rounded, also where the step was skipped",
                                   where, "model", model_.values(), expected);
    }
    return good;
  }
  /// Makes three steps. Gradients are `factor` times the usual ones, and the updates scale them back.
  void take_steps(int threads, float factor = 1) {
    TestRank<device::Cpu> rank(threads, update_arena_bytes);
    for (int taken = 1; taken <= 3; ++taken) {
      set_gradient(taken, factor);
      device::StepDecision decision = decided(taken);
      decision.gradient_scale /= factor;
      step(rank.stream, decision);
    }
  }

  std::vector<float> main() const { return main_.values(); }
  std::vector<float> gradient() const { return gradient_.values(); }
  /// Returns the values that a step changes, apart from `model`: the main weights and the states, decoded.
  std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> list{main()};
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const std::vector<float> words = states_[i].values();
      const auto* const bytes = reinterpret_cast<const std::byte*>(words.data());
      list.push_back(optim::decoded(*formats_[i], {bytes, {formats_[i]->bytes(main_.numel())}}, main_.numel()));
    }
    return list;
  }
  /// Compares with the values of another piece, or of this one at another time, whose elements begin at `begin`.
  bool expect_values_of(std::string_view asked, std::string_view where, const std::vector<std::vector<float>>& expected,
                        std::int64_t begin = 0) const {
    const auto found = values();
    for (std::size_t i = 0; i < found.size(); ++i)
      if (!expect_values(asked, where, i == 0 ? "main" : message("state ", i - 1), found[i],
                         std::span(expected[i]).subspan(static_cast<std::size_t>(begin), found[i].size())))
        return false;
    return true;
  }
  /// Compares with a piece whose elements begin at `begin`.
  bool expect_same(std::string_view asked, std::string_view where, const OptimizerPiece& expected,
                   std::int64_t begin = 0) const {
    if (!expect_values_of(asked, where, expected.values(), begin)) return false;
    if constexpr (!has_model) return true;
    const std::vector<Compute> found = model_.values(), all = expected.model_.values();
    return expect_values(asked, where, "model", found,
                         std::span(all).subspan(static_cast<std::size_t>(begin), found.size()));
  }

 private:
  const O* optimizer_;
  const Parameter* parameter_;
  std::int64_t begin_ = 0;
  Guarded<float> main_, gradient_;
  std::vector<Guarded<float>> states_;  ///< bytes of the states, as words
  std::vector<const optim::StateFormat*> formats_;
  Guarded<Compute> model_;
};

}  // namespace detail

template <class O>
void check_optimizer_names(const O& optimizer) {
  const O copy = optimizer;
  constexpr std::string_view asked =
      "an optimizer and its copies have one name, and the same different names for the states of a parameter, by which "
      "checkpoints hold them";
  if (std::string_view(optimizer.name()).empty() || optimizer.name() != copy.name())
    return void(fail(asked, "name()", "\"", optimizer.name(), "\", and of a copy \"", copy.name(), "\""));
  for (const Parameter& parameter : stepped_parameters()) {
    const auto list = [&](const O& from) {
      std::vector<std::string> states;
      for (const optim::StateSpec& state : from.states(parameter)) states.emplace_back(state.name);
      return states;
    };
    const std::vector<std::string> names = list(optimizer);
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    const std::string where = message("states of ", detail::words_of(parameter));
    if (names != list(copy) || names != list(optimizer)) return void(fail(asked, where, "they change: ", all));
    const std::set<std::string> different(names.begin(), names.end());
    if (different.size() != names.size() || different.contains("")) return void(fail(asked, where, "\"", all, "\""));
  }
}

template <class Compute>
void check_optimizer_steps(const auto& optimizer) {
  for (const Parameter& parameter : stepped_parameters())
    for (const int threads : {1, 3}) {
      TestRank<device::Cpu> rank(threads, detail::update_arena_bytes);
      detail::OptimizerPiece<Compute, std::remove_cvref_t<decltype(optimizer)>> piece(optimizer, parameter);
      const auto before = piece.main();
      for (int taken = 1; taken <= 3; ++taken) {
        const std::string where = message(detail::words_of(parameter), " in ", detail::compute_name<Compute>, ", step ",
                                          taken, ", ", threads == 1 ? "one thread" : "three threads");
        piece.set_gradient(taken);
        const auto gradient = piece.gradient();
        if (!piece.expect_step(where, rank.stream, detail::decided(taken)) ||
            !expect_values("an update reads its gradient and leaves it as it is", where, "gradient", piece.gradient(),
                           gradient))
          return;
        for (const float value : piece.main())
          if (!std::isfinite(value))
            return void(fail("finite weights, states that began as zeros and finite gradients give finite weights",
                             where, "a weight is ", in_words(value)));

        const auto stepped = piece.values();
        piece.set_gradient(taken, std::numeric_limits<float>::quiet_NaN());
        if (!piece.expect_step(where, rank.stream, {.taken = taken, .lr = 0.5, .skipped = 1}) ||
            !piece.expect_values_of("a skipped step changes nothing but `model`, whatever its gradient is", where,
                                    stepped))
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
  using Piece = detail::OptimizerPiece<bf16, O>;
  for (const Parameter& parameter : stepped_parameters()) {
    const std::int64_t count = parameter.shape.numel();
    const std::int64_t block = std::max(optim::step_work(optimizer).block_of(parameter), std::int64_t{1});
    const bool cuts = block < count;
    const std::string_view asked =
        cuts ? "an optimizer steps every element alone, or every block that it states: pieces of a parameter, and "
               "any number of threads, give the bits of the parameter stepped whole"
             : "the same update of the same whole parameter gives the same bits";
    Piece whole(optimizer, parameter), again(optimizer, parameter);
    whole.take_steps(1);
    again.take_steps(cuts ? 3 : 1);
    const std::string name = detail::words_of(parameter);
    if (!again.expect_same(asked, message(name, cuts ? ", whole, 3 threads" : ", once more"), whole)) return;
    if (!cuts) continue;
    for (const std::int64_t blocks :
         {std::int64_t{1}, std::int64_t{5}, std::int64_t{17}, count / block / 2, (count - 1) / block}) {
      const std::int64_t length = blocks * block;
      if (length < 1 || length >= count || count / length > 200) continue;
      for (std::int64_t begin = 0; begin < count; begin += length) {
        const std::int64_t end = std::min(begin + length, count);
        Piece piece(optimizer, parameter, begin, end);
        piece.take_steps(1);
        if (!piece.expect_same(asked, message(name, ", elements [", begin, ", ", end, ") as a piece"), whole, begin))
          return;
      }
    }
  }
}

template <class O>
void check_optimizer_scale(const O& optimizer) {
  constexpr std::string_view asked =
      "the gradient of a step is `gradient` times `decision.gradient_scale`: four times the gradient and a quarter of "
      "the scale give the same bits";
  for (const Parameter& parameter : stepped_parameters()) {
    detail::OptimizerPiece<float, O> found(optimizer, parameter), expected(optimizer, parameter);
    found.take_steps(1, 4);
    expected.take_steps(1);
    if (!found.expect_same(asked, detail::words_of(parameter), expected)) return;
  }
}

template <class O>
void check_optimizer_counts(const O& optimizer) {
  using device::Cpu;
  using device::Meta;
  const auto check = [&]<class Compute>(Compute, const Parameter& parameter) {
    const auto counts = [&](auto arena, auto device, const device::StepDecision& decision) {
      typename decltype(device)::Stream stream(arena, 2);
      detail::OptimizerPiece<Compute, O> piece(optimizer, parameter);
      piece.set_gradient(1);
      piece.step(stream, decision);
      return std::array{stream.counters.matmul_flops, stream.counters.elementwise_bytes, arena.peak(),
                        arena.peak_scratch()};
    };
    const auto on_cpu = [&](const device::StepDecision& decision) {
      device::Ledger ledger;
      return counts(Cpu::Arena(ledger, 1 << 22), Cpu{}, decision);
    };
    const auto expect = [](std::string_view asked, const std::string& where, const auto& found, const auto& expected) {
      constexpr std::string_view names[] = {"the number of FLOPs of matmuls", "the number of bytes that are moved",
                                            "the arena's peak in bytes", "the scratch at its peak in bytes"};
      for (std::size_t i = 0; i < found.size(); ++i)
        if (!expect_value(asked, where, names[i], found[i], expected[i])) return false;
      return true;
    };
    const std::string where = message(detail::words_of(parameter), " in ", detail::compute_name<Compute>);
    const auto found = on_cpu(detail::decided(1));
    return expect("a dry run counts of an update, on device::Meta, what it is on the CPU", where,
                  counts(Meta::Arena::unbounded(), Meta{}, detail::decided(1)), found) &&
           expect("an update enqueues the same work in every step", message(where, ", in step 1000"),
                  on_cpu({.taken = 1000, .lr = 1e-3}), found) &&
           expect("an update enqueues the same work in every step, skipped steps among them", where,
                  on_cpu({.taken = 1, .skipped = 1}), found);
  };
  for (const Parameter& parameter : stepped_parameters())
    if (!check(float{}, parameter) || !check(bf16{}, parameter)) return;
}

template <class O>
void check_optimizer_replays(const O& optimizer) {
  constexpr std::string_view asked =
      "an update reads the decision on the device and enqueues the same work in every step: work that was captured in "
      "one step and is launched in others steps as updates of their own do";
  for (const Parameter& parameter : stepped_parameters()) {
    const std::vector<device::StepDecision> decisions = {
        detail::decided(1), detail::decided(2), {.taken = 2, .lr = 0.3, .skipped = 1}, detail::decided(3)};
    const O stepping = optimizer;  // reveals state that the optimizer stores in itself
    detail::OptimizerPiece<float, O> expected(stepping, parameter), found(optimizer, parameter);
    TestRank<device::Cpu> rank(1, detail::update_arena_bytes);
    for (std::size_t step = 0; step < decisions.size(); ++step) {
      expected.set_gradient(static_cast<int>(step));
      expected.step(rank.stream, decisions[step]);
    }
    device::Ledger ledger;
    QueuedCpu::Arena arena(ledger, 1 << 22);
    QueuedCpu::Stream stream(arena, 1);
    device::StepDecision decision = decisions[0];
    const auto graph = QueuedCpu::capture(stream, [&] { found.step(stream, decision); });
    for (std::size_t step = 0; step < decisions.size(); ++step) {
      decision = decisions[step];
      found.set_gradient(static_cast<int>(step));
      graph.launch(stream);
      stream.synchronize();
    }
    if (!found.expect_same(asked, detail::words_of(parameter), expected)) return;
  }
}

}  // namespace fsdp::testing
