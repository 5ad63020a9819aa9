// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs a module between two residual streams, without a model: its memory (tensors with guard elements in one flat
/// buffer, as in a slot of unsharded weights), inputs and results. Contains no tests.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/testing/guarded.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/tiling/policies.hpp>

namespace fsdp::testing {

/// Whether tensors are adjacent, or each tensor starts at a multiple of 64 elements.
enum class Placing : std::uint8_t { adjacent, padded };

/// Owns tensors of one type. On a device without storage it has only their addresses. Tensors are initialised with NaN,
/// guards with 77.
template <class Device, class T>
class Slot {
 public:
  explicit Slot(const Shape& shape) : Slot(std::vector<Shape>{shape}, Placing::adjacent) {}
  Slot(const std::vector<Shape>& shapes, Placing placing) : shapes_(shapes) {
    std::int64_t end = 64;
    for (const Shape& shape : shapes) {
      if (placing == Placing::padded) end = round_up(end, std::int64_t{64});
      begins_.push_back(end);
      end += shape.numel();
    }
    if (!Device::counts_only) data_.assign(static_cast<std::size_t>(end + 64), T(77.0f));
    poison();
  }

  Tensor<T> operator[](std::size_t i) {
    T* const base = Device::counts_only ? reinterpret_cast<T*>(Device::unbacked(0)) : data_.data();
    return {base + begins_[i], shapes_[i]};
  }
  void poison() {
    if (Device::counts_only) return;
    for (std::size_t i = 0; i < shapes_.size(); ++i)
      std::memset(static_cast<void*>((*this)[i].data()), 0xff, static_cast<std::size_t>((*this)[i].bytes()));
  }
  void set(std::size_t i, const Numbers& values) {
    require(static_cast<std::int64_t>(values.size()) == shapes_[i].numel(),
            "a slot's tensor takes as many values as it has");
    for (std::size_t k = 0; k < values.size(); ++k)
      (*this)[i].data()[k] = static_cast<T>(static_cast<float>(values[k]));
  }
  void set(const std::vector<Numbers>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }
  Numbers values(std::size_t i) {
    const Tensor<T> tensor = (*this)[i];
    return {tensor.data(), tensor.data() + tensor.numel()};
  }
  std::vector<Numbers> all_values() {
    std::vector<Numbers> list;
    for (std::size_t i = 0; i < shapes_.size(); ++i) list.push_back(values(i));
    return list;
  }
  bool guards_untouched() const {
    std::vector<T> guards = data_;
    for (std::size_t i = 0; i < shapes_.size(); ++i)
      std::fill_n(guards.begin() + begins_[i], shapes_[i].numel(), T(77.0f));
    return std::ranges::all_of(guards, [](T guard) { return static_cast<double>(guard) == 77; });
  }

 private:
  std::vector<Shape> shapes_;
  std::vector<std::int64_t> begins_;
  std::vector<T> data_;
};

/// The arena and stream of one rank, with a sentinel at each end of the arena. On the CPU, all free memory can be
/// filled with NaN.
template <class Device>
class TestRank {
 public:
  using Arena = typename Device::Arena;
  static Arena make(device::Ledger& ledger, std::int64_t bytes) {
    if constexpr (Device::counts_only)
      return Arena::unbounded();
    else
      return Arena(ledger, bytes);
  }

  device::Ledger ledger;
  Arena arena;
  typename Device::Stream stream;

  explicit TestRank(int threads, std::int64_t bytes = std::int64_t{1} << 20)
      : arena(make(ledger, bytes)), stream(arena, threads) {
    low_ = arena.template allocate<float>(Arena::End::low, {16});
    high_ = arena.template allocate<float>(Arena::End::high, {16});
    for (const Tensor<float>& sentinel : {low_, high_})
      if (!Device::counts_only) std::fill_n(sentinel.data(), 16, 77.0f);
  }
  void poison_free_memory() {
    typename Arena::Frame frame(arena);
    const auto all = frame.template allocate<std::uint8_t>({(arena.capacity() - arena.used()) / 64 * 64});
    std::memset(all.data(), 0xff, static_cast<std::size_t>(all.bytes()));
  }
  bool sentinels_untouched() const {
    return std::ranges::all_of(std::array{low_, high_}, [](const Tensor<float>& sentinel) {
      return std::count(sentinel.data(), sentinel.data() + 16, 77.0f) == 16;
    });
  }
  std::int64_t high_end() const { return arena.mark(Arena::End::high).offset; }
  std::int64_t low_end() const { return arena.mark(Arena::End::low).offset; }

 private:
  Tensor<float> low_, high_;
};

template <class Device, class Module>
struct ModuleFields {
  static constexpr std::size_t parameter_count = Module::parameter_count;
  Slot<Device, typename Module::Compute> weights;
  Slot<Device, typename Module::Accumulate> gradients;
  std::array<bool, parameter_count> written{};

  ModuleFields(const Module& module, Placing placing)
      : weights(shapes_of(module), placing), gradients(shapes_of(module), placing) {}

  typename Module::Weights weight_views() {
    std::array<Tensor<const typename Module::Compute>, parameter_count> list;
    for (std::size_t i = 0; i < parameter_count; ++i) list[i] = weights[i];
    return nn::unflatten<Module::template FieldsOf>(list);
  }
  typename Module::Gradients gradient_views() {
    std::array<nn::GradientView<typename Module::Accumulate>, parameter_count> list;
    for (std::size_t i = 0; i < parameter_count; ++i) list[i] = {gradients[i], &written[i]};
    return nn::unflatten<Module::template FieldsOf>(list);
  }

 private:
  static std::vector<Shape> shapes_of(const Module& module) {
    std::vector<Shape> shapes;
    for (const nn::Parameter& parameter : nn::flatten<Module::template FieldsOf>(module.parameters()))
      shapes.push_back(parameter.shape);
    return shapes;
  }
};

/// The sizes with which a module is constructed. All its other sizes follow from `hidden`.
struct ModuleSizes {
  std::int64_t sequences = 1;
  std::int64_t length = 1;
  std::int64_t hidden = 12;

  std::int64_t tokens() const { return sequences * length; }
  std::string in_words() const { return message(sequences, " x ", length, " tokens, hidden ", hidden); }
};

/// The type of a tested struct's sizes: its `Sizes` if it has that type, otherwise ModuleSizes. `Sizes` must have the
/// members of ModuleSizes and may have more.
template <class Tested>
struct SizesOfTested : std::type_identity<ModuleSizes> {};
template <class Tested>
requires requires { typename Tested::Sizes; }
struct SizesOfTested<Tested> : std::type_identity<typename Tested::Sizes> {};
template <class Tested>
using SizesOf = typename SizesOfTested<Tested>::type;

/// Results of a run: y and dx of every micro-batch, and the accumulated gradients of the weights.
struct ModuleOutcome {
  std::vector<Numbers> y, dx, gradients;
};

inline void add_to(std::vector<Numbers>& sums, const std::vector<Numbers>& more) {
  for (std::size_t i = 0; i < sums.size(); ++i) std::ranges::transform(sums[i], more[i], sums[i].begin(), std::plus());
}

template <class Sizes, class Tiling = tiling::RunTimeTiling>
struct TiledModuleCase {
  Sizes sizes = {};
  Tiling tiling = {};
  Placing placing = Placing::adjacent;
  int threads = 1;

  std::string in_words() const {
    return message(sizes.in_words(), ", tiling ", policy_text(tiling), ", ",
                   placing == Placing::adjacent ? "weights side by side" : "weights at multiples of 64 elements",
                   threads == 1 ? "" : message(", ", threads, " threads"));
  }
};

template <class Tested, class Tiling = tiling::RunTimeTiling>
using ModuleCase = TiledModuleCase<SizesOf<Tested>, Tiling>;

/// Returns numbers in (center - spread, center + spread) that T can represent.
template <class T>
Numbers rounded_numbers(std::uint64_t seed, std::int64_t count, double spread = 1, double center = 0) {
  Numbers list;
  for (std::int64_t i = 0; i < count; ++i)
    list.push_back(static_cast<float>(T(static_cast<float>(center + spread * number_at(seed, i)))));
  return list;
}

/// Whether some weights of a module may be in float next to 16-bit weights (PrecisionBy).
template <class Module>
inline constexpr bool takes_float_weights =
    std::is_same_v<typename Module::Weights,
                   typename Module::template FieldsOf<InEither<const typename Module::Compute>>>;

/// Returns weights that all have an effect: weights of norms near 1, nonzero biases, matrices that preserve the
/// magnitude of their input. Those that a module may have in float are not rounded to T.
template <class T, class Module>
std::vector<Numbers> module_weights(const Module& module) {
  std::vector<Numbers> list;
  for (const nn::Parameter& parameter : nn::flatten<Module::template FieldsOf>(module.parameters())) {
    const bool ones = parameter.initial == nn::Initial::ones;
    const double columns = parameter.shape.rank == 2 ? static_cast<double>(parameter.shape[1]) : 10;
    const bool wide = takes_float_weights<Module> && parameter.may_be_float;
    list.push_back((wide ? rounded_numbers<float> : rounded_numbers<T>)(100 + list.size(), parameter.shape.numel(),
                                                                        ones ? 0.4 : 1.5 / std::sqrt(columns),
                                                                        ones ? 1 : 0));
  }
  return list;
}

namespace detail {

FSDP_HAS_MEMBER(share)

inline double norm_of(const Numbers& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// |found - expected| / max(|expected|, least); infinite if a number is not finite.
inline double relative_error(const Numbers& found, const Numbers& expected, double least) {
  Numbers difference;
  for (std::size_t i = 0; i < expected.size(); ++i) difference.push_back(found[i] - expected[i]);
  const double error = norm_of(difference) / std::max({norm_of(expected), least, 1e-30});
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

}  // namespace detail

/// A module with its weights, gradients, input, output and residual gradient.
template <class Device, class Tested, class Precision, class Tiling = tiling::RunTimeTiling>
class ModuleRun {
 public:
  using L = nn::Local<Device, Precision>;
  using Compute = typename L::Compute;
  using Sizes = SizesOf<Tested>;
  using Case = TiledModuleCase<Sizes, Tiling>;
  using Module = decltype(Tested::template make<L>(Sizes{}));

 private:
  static constexpr bool reads_shared = nn::BlockModule<Module, L>;
  static_assert(
      reads_shared || nn::Module<Module, L>,
      "fsdp: the suite of modules runs units between two residual streams: forward(context, weights, saved, x, "
      "y) and backward(context, weights, gradients, saved, dy), or those of a block, with `shared` behind the "
      "context. Entries and heads are tried by the suite of models");
  struct ReadsNothing {
    using Shared = nn::Nothing;
  };

 public:
  explicit ModuleRun(const Case& how) : ModuleRun(how, nn::shared_plans(nn::TilePlans(how.tiling))) {}
  /// Constructs the run with the tile plans of another run of the same case.
  ModuleRun(const Case& how, std::shared_ptr<nn::TilePlans> plans)
      : rank(how.threads, arena_bytes(how, plans)),
        module(Tested::template make<L>(how.sizes)),
        fields(module, how.placing),
        stream(std::vector<Shape>(3, {how.sizes.tokens(), how.sizes.hidden}), Placing::padded),
        context{.arena = rank.arena,
                .stream = rank.stream,
                .plans = std::move(plans),
                .sequences = how.sizes.sequences,
                .sequence_length = how.sizes.length} {
    if constexpr (reads_shared) shared = make_shared(how.sizes);
  }

  void forward() {
    if constexpr (reads_shared)
      module.forward(context, shared, fields.weight_views(), saved, stream[0], stream[1]);
    else
      module.forward(context, fields.weight_views(), saved, stream[0], stream[1]);
  }
  void backward() {
    if constexpr (reads_shared && nn::BlockWithoutWeightsInBackward<Module, L>)
      module.backward(context, shared, fields.gradient_views(), saved, stream[2]);
    else if constexpr (reads_shared)
      module.backward(context, shared, fields.weight_views(), fields.gradient_views(), saved, stream[2]);
    else
      module.backward(context, fields.weight_views(), fields.gradient_views(), saved, stream[2]);
  }

  TestRank<Device> rank;
  Module module;
  ModuleFields<Device, Module> fields;
  Slot<Device, Compute> stream;  // x, y, dy: [T, H] each
  typename Module::Saved saved{};
  nn::Context<L> context;
  /// Data that the block reads from the model's entry; nn::Nothing if it reads none.
  typename std::conditional_t<reads_shared, Module, ReadsNothing>::Shared shared{};

 private:
  /// More than twice the bytes of the dry run, so that a module that uses more than planned fails a check instead of
  /// running out of memory. The dry run creates the tile plans.
  static std::int64_t arena_bytes(const Case& how, const std::shared_ptr<nn::TilePlans>& plans) {
    constexpr std::int64_t some = std::int64_t{2} << 20;
    if constexpr (Device::counts_only) {
      return some;
    } else {
      ModuleRun<device::Meta, Tested, Precision, Tiling> planned(how, plans);
      planned.forward();
      planned.backward();
      return some + 2 * planned.rank.arena.peak();
    }
  }

  auto make_shared(const Sizes& sizes) {
    if constexpr (detail::has_share<Tested>()) {
      return Tested::template share<L>(context, sizes);
    } else {
      static_assert(std::is_same_v<typename Module::Shared, nn::Nothing>,
                    "fsdp: this block reads what a model's entry makes for all blocks; give the tested struct template "
                    "<class L> static Shared share(nn::Context<L>&, const ModuleSizes&)");
      return nn::Nothing{};
    }
  }
};

/// Runs forward and backward over micro-batches, with NaN in all memory that must not be read. Fails, and sets `good`
/// to false, if the module accesses or retains memory that it does not own. `passes` computes forward() and backward()
/// in the memory of `run`.
template <class Run, class Passes>
ModuleOutcome outcome_of(Run& run, std::string_view where, const std::vector<std::uint64_t>& seeds, bool& good,
                         Passes& passes) {
  using Compute = typename Run::Compute;
  using End = device::Cpu::Arena::End;
  const auto expect = [&](bool holds, std::string_view asked, std::string_view found) {
    if (good && !holds) good = fail(asked, where, found);
  };
  const std::vector<Numbers> weights = module_weights<Compute>(run.module);
  run.fields.weights.set(weights);
  const std::int64_t size = run.stream[0].numel();
  ModuleOutcome outcome;
  for (const std::uint64_t seed : seeds) {
    const Numbers x = rounded_numbers<Compute>(seed, size);
    run.stream.poison();
    run.stream.set(0, x);
    run.rank.poison_free_memory();
    const auto low = run.rank.arena.mark(End::low);
    const std::int64_t high = run.rank.high_end();
    passes.forward();
    outcome.y.push_back(run.stream.values(1));
    expect(run.rank.high_end() == high,
           "forward gives temporary memory back: only what backward reads stays, at the arena's low end",
           "memory at the arena's high end is still taken; allocate it in an L::Frame");
    run.stream.poison();
    run.stream.set(0, x);
    run.stream.set(2, rounded_numbers<Compute>(seed + 1, size));
    const std::int64_t kept = run.rank.low_end();
    run.rank.poison_free_memory();
    passes.backward();
    outcome.dx.push_back(run.stream.values(2));
    expect(run.rank.high_end() == high && run.rank.low_end() == kept, "backward keeps no memory",
           "memory of the arena is still taken; allocate it in an L::Frame");
    expect(run.stream.values(0) == x, "a module does not write its input", "x was changed");
    run.rank.arena.release(End::low, low);
  }
  outcome.gradients = run.fields.gradients.all_values();
  constexpr std::string_view outputs = "a module writes y, dx and the gradients of its weights, and nothing else";
  expect(run.fields.weights.all_values() == weights, outputs, "a weight was changed");
  expect(run.fields.weights.guards_untouched(), outputs, "memory beside the weights was written");
  expect(run.fields.gradients.guards_untouched(), outputs, "memory beside the gradients was written");
  expect(run.stream.guards_untouched(), outputs, "memory beside x, y or dy was written");
  expect(run.rank.sentinels_untouched(), outputs, "memory of another unit in the arena was written");
  return outcome;
}
template <class Run>
ModuleOutcome outcome_of(Run& run, std::string_view where, const std::vector<std::uint64_t>& seeds, bool& good) {
  return outcome_of(run, where, seeds, good, run);
}

inline constexpr std::string_view module_ends_without_error = "a module runs at every size without an error";

/// Returns run(good). Throws Failed if `run` sets `good` to false, or if it throws an error, which is a failure too.
ModuleOutcome outcome_or_stop(const Where& where, auto run) {
  ModuleOutcome outcome;
  bool good = true;
  const bool ended = report_errors(module_ends_without_error, where, [&] { outcome = run(good); });
  if (!ended || !good) throw Failed();
  return outcome;
}

/// Constructs a module and runs it as configured. Throws Failed after a failure.
template <class Tested, class Precision, class Tiling = tiling::RunTimeTiling>
ModuleOutcome run_module(const ModuleCase<Tested, Tiling>& how, const std::vector<std::uint64_t>& seeds) {
  return outcome_or_stop(how, [&](bool& good) {
    ModuleRun<device::Cpu, Tested, Precision, Tiling> run(how);
    return outcome_of(run, how.in_words(), seeds, good);
  });
}

}  // namespace fsdp::testing
