// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of a module: gradients are the derivatives of its values, results do not depend on tiling, and it accesses
/// only its own memory.
///
///     struct MyMlp {
///       template <class L>
///       static mine::Mlp<L> make(const ModuleSizes& sizes) { return {{}, sizes.hidden, 3 * sizes.hidden}; }
///     };
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, ModuleSuite, MyMlp);
///
/// Optional members: `static std::vector<ModuleSizes> sizes()`, if the default sizes are not suitable; and, for a block
/// that reads data that its model's entry creates, `template <class L> static Shared share(nn::Context<L>&, const
/// ModuleSizes&)`. If the struct has a type `Sizes` with the members of ModuleSizes, all three functions use that type
/// instead.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/testing/module_run.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/staged_run.hpp>

namespace fsdp::testing {
namespace detail {

FSDP_HAS_MEMBER(sizes)

/// Calls check(sizes) for the struct's sizes, until one fails. By default they are one token, odd numbers of tokens,
/// and more tokens than a vector register or a thread team processes at once.
template <class Tested>
void each_size(auto check) {
  const auto list = []() -> std::vector<SizesOf<Tested>> {
    if constexpr (has_sizes<Tested>())
      return Tested::sizes();
    else
      return {{1, 1, 12}, {1, 5, 12}, {2, 7, 24}, {3, 33, 24}};
  };
  try {
    for (const auto& sizes : list()) check(sizes);
  } catch (const Failed&) {
  }
}

template <class Tested>
std::vector<nn::Parameter> module_parameters(const SizesOf<Tested>& sizes) {
  using Module = typename ModuleRun<device::Cpu, Tested, Fp32>::Module;
  const auto list =
      nn::flatten<Module::template FieldsOf>(Tested::template make<nn::Local<device::Cpu, Fp32>>(sizes).parameters());
  return {list.begin(), list.end()};
}

/// Checks that y, dx and gradients agree with another run within a relative bound. Gradients of at most two thousandths
/// of the largest one, such as a query's gradient with a single key, are only rounding errors of larger gradients, and
/// are compared on that scale. Throws Failed if they do not.
template <class Tested>
void expect_same_outcome(std::string_view asked, std::string_view where, const SizesOf<Tested>& sizes,
                         const ModuleOutcome& found, const ModuleOutcome& expected, double bound) {
  double largest = 0;
  for (const Numbers& gradient : expected.gradients) largest = std::max(largest, norm_of(gradient));
  const auto expect = [&](const std::string& which, const Numbers& a, const Numbers& b) {
    const double error = relative_error(a, b, 2e-3 * largest);
    if (!std::isfinite(error))
      stop(asked, where, which,
           " holds numbers that are not finite: memory was read that nobody had written (it holds NaN here), or the "
           "values overflow");
    if (error > bound)
      stop(asked, where, which, " differs by ", in_words(error), " of its norm; at most ", in_words(bound),
           " is rounding");
  };
  for (std::size_t i = 0; i < expected.y.size(); ++i) {
    expect("y", found.y[i], expected.y[i]);
    expect("dx", found.dx[i], expected.dx[i]);
  }
  const auto parameters = module_parameters<Tested>(sizes);
  for (std::size_t i = 0; i < expected.gradients.size(); ++i)
    expect(message("the gradient of ", parameters[i].name), found.gradients[i], expected.gradients[i]);
}

/// The sum over dy times y in float64, as a function of the input and the weights.
template <class Tested>
class ModuleLoss {
 public:
  ModuleLoss(const ModuleCase<Tested>& how, std::uint64_t seed) : run_(how) {
    const std::int64_t size = how.sizes.tokens() * how.sizes.hidden;
    run_.fields.weights.set(module_weights<float>(run_.module));
    run_.stream.set(0, rounded_numbers<float>(seed, size));
    dy_ = rounded_numbers<float>(seed + 1, size);
  }
  float* input() { return run_.stream[0].data(); }
  float* weight(std::size_t i) { return run_.fields.weights[i].data(); }
  /// Returns the derivative with respect to an element of the input or of a weight, by central differences at two step
  /// sizes, extrapolated so that the second-order error cancels.
  double derivative(float& element) {
    const auto difference = [&](double h) { return (moved(element, h) - moved(element, -h)) / (2 * h); };
    return (4 * difference(step / 2) - difference(step)) / 3;
  }
  /// Returns the error in a derivative that rounding to float may cause.
  double noise() const { return 1e-5 * std::sqrt(size_) / step; }

 private:
  static constexpr double step = 0x1p-5;

  double moved(float& element, double by) {
    const float before = element;
    element = static_cast<float>(static_cast<double>(before) + by);
    const auto low = run_.rank.arena.mark(device::Cpu::Arena::End::low);
    run_.forward();
    run_.rank.arena.release(device::Cpu::Arena::End::low, low);
    element = before;
    const Numbers y = run_.stream.values(1);
    double sum = 0;
    size_ = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += dy_[i] * y[i];
      size_ += dy_[i] * y[i] * dy_[i] * y[i];
    }
    return sum;
  }

  ModuleRun<device::Cpu, Tested, Fp32> run_;
  Numbers dy_;
  double size_ = 0;
};

/// Returns the elements to vary: all of them for short runs; otherwise the one with the largest gradient and some
/// evenly spaced ones.
inline std::vector<std::size_t> elements_to_move(const Numbers& gradient, std::int64_t tokens) {
  const auto largest = std::ranges::max_element(gradient, {}, [](double value) { return std::abs(value); });
  std::vector<std::size_t> list = {static_cast<std::size_t>(largest - gradient.begin())};
  const std::size_t stride = tokens <= 8 ? 1 : std::max<std::size_t>(1, gradient.size() / 12);
  for (std::size_t i = stride / 2; i < gradient.size(); i += stride) list.push_back(i);
  return list;
}

}  // namespace detail

/// Checks that parameters have unique names, which identify them in a checkpoint.
template <class Tested>
void check_module_parameters() {
  constexpr std::string_view asked = "a module's parameters have names, each its own, and at least one element";
  detail::each_size<Tested>([&](const auto& sizes) {
    std::set<std::string> names;
    std::vector<nn::Parameter> parameters;
    if (!report_errors(module_ends_without_error, sizes,
                       [&] { parameters = detail::module_parameters<Tested>(sizes); }))
      throw Failed();
    for (const nn::Parameter& parameter : parameters) {
      const std::string name = parameter.name;
      if (!parameter.present() && parameter.shape == Shape{0}) continue;
      if (name.empty()) stop(asked, sizes, "a parameter without a name");
      if (!names.insert(name).second) stop(asked, sizes, "two are called ", name);
      if (parameter.shape.numel() < 1) stop(asked, sizes, name, " has ", parameter.shape.numel(), " elements");
    }
  });
}

/// Checks that backward computes the derivatives of forward.
template <class Tested>
void check_module_gradients() {
  constexpr std::string_view asked =
      "backward gives the derivatives of forward: central differences of the sum of dy times y, in every weight and in "
      "x";
  detail::each_size<Tested>([&](const auto& sizes) {
    const ModuleCase<Tested> how{.sizes = sizes};
    const ModuleOutcome outcome = run_module<Tested, Fp32>(how, {10});
    detail::ModuleLoss<Tested> loss(how, 10);
    const auto check = [&](std::string_view name, float* elements, const Numbers& gradient) {
      const double size = detail::norm_of(gradient) / std::sqrt(static_cast<double>(gradient.size()));
      for (const std::size_t i : detail::elements_to_move(gradient, sizes.tokens())) {
        const double expected = loss.derivative(elements[i]);
        if (!(std::abs(gradient[i] - expected) <= 1e-2 * (std::abs(expected) + size) + loss.noise()))
          stop(asked, how, "the gradient of ", name, "[", i, "] is ", in_words(gradient[i]),
               "; moving that number says ", in_words(expected));
      }
    };
    const auto parameters = detail::module_parameters<Tested>(sizes);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].present()) check(parameters[i].name, loss.weight(i), outcome.gradients[i]);
    check("x", loss.input(), outcome.dx.front());
  });
}

/// Checks that the first write of a gradient overwrites its memory and that later writes accumulate.
template <class Tested>
void check_module_adds() {
  constexpr std::string_view asked =
      "gradients of micro-batches add up: the first write replaces what the memory held, later ones add "
      "(GradientView::next)";
  detail::each_size<Tested>([&](const auto& sizes) {
    const ModuleCase<Tested> how{.sizes = sizes};
    const ModuleOutcome first = run_module<Tested, Fp32>(how, {10}), second = run_module<Tested, Fp32>(how, {20});
    ModuleOutcome expected{
        .y = {first.y[0], second.y[0]}, .dx = {first.dx[0], second.dx[0]}, .gradients = first.gradients};
    add_to(expected.gradients, second.gradients);
    detail::expect_same_outcome<Tested>(asked, how.in_words(), sizes, run_module<Tested, Fp32>(how, {10, 20}), expected,
                                        2e-5);
  });
}

/// Checks that results do not depend on tiling, on the placement of weights, or on the number of threads.
template <class Tested, class Precision>
void check_module_tilings() {
  constexpr std::string_view asked =
      "y, dx and gradients are those of the untiled module on one thread with weights side by side";
  using tiling::RunTimeTiling;
  detail::each_size<Tested>([&](const auto& sizes) {
    const ModuleOutcome expected = run_module<Tested, Precision>(ModuleCase<Tested>{.sizes = sizes}, {10, 20});
    for (const RunTimeTiling& policy : {RunTimeTiling{}, RunTimeTiling::tiles(2), RunTimeTiling::tiles(5),
                                        RunTimeTiling::tokens(3), RunTimeTiling::tokens(64)})
      for (const Placing placing : {Placing::adjacent, Placing::padded}) {
        const ModuleCase<Tested> how{
            .sizes = sizes, .tiling = policy, .placing = placing, .threads = placing == Placing::padded ? 2 : 1};
        detail::expect_same_outcome<Tested>(asked, how.in_words(), sizes, run_module<Tested, Precision>(how, {10, 20}),
                                            expected, std::is_same_v<Precision, Fp32> ? 3e-5 : 3e-2);
      }
  });
}

/// Checks that the module computes the same function in bf16, within rounding.
template <class Tested>
void check_module_in_bf16() {
  constexpr std::string_view asked = "in bf16 a module gives what it gives in float, within bf16's rounding";
  detail::each_size<Tested>([&](const auto& sizes) {
    const ModuleCase<Tested> how{.sizes = sizes};
    const ModuleOutcome expected = run_module<Tested, Fp32>(how, {10});
    detail::expect_same_outcome<Tested>(asked, how.in_words(), sizes, run_module<Tested, Bf16Mixed>(how, {10}),
                                        expected, 8e-2);
  });
}

/// Checks that a dry run counts the same costs as a run on the CPU.
template <class Tested, class Precision>
void check_module_costs() {
  constexpr std::string_view asked =
      "a dry run (device Meta) counts the bytes and the work of the CPU: what a plan says is what a run takes";
  using tiling::RunTimeTiling;
  detail::each_size<Tested>([&](const auto& sizes) {
    for (const RunTimeTiling& policy : {RunTimeTiling{}, RunTimeTiling::tiles(3)})
      for (const int threads : {1, 2}) {
        const ModuleCase<Tested> how{.sizes = sizes, .tiling = policy, .placing = Placing::padded, .threads = threads};
        const auto costs_on = [&]<class Device>(Device) {
          ModuleRun<Device, Tested, Precision> run(how);
          run.rank.stream.counters = {};
          run.forward();
          run.backward();
          const auto& counters = run.rank.stream.counters;
          return std::vector<std::pair<std::string_view, std::int64_t>>{
              {"bytes of the arena at its peak", run.rank.arena.peak()},
              {"bytes of kernels' scratch", run.rank.arena.peak_scratch()},
              {"bytes kept for backward", run.rank.arena.used()},
              {"FLOPs of matmuls", counters.matmul_flops},
              {"FLOPs of attention", counters.attention_flops},
              {"bytes read and written by the rest", counters.elementwise_bytes}};
        };
        const bool ended = report_errors(module_ends_without_error, how, [&] {
          const auto planned = costs_on(device::Meta{}), taken = costs_on(device::Cpu{});
          for (std::size_t i = 0; i < taken.size(); ++i)
            if (const auto& [what, bytes] = taken[i]; bytes != planned[i].second)
              stop(asked, how, what, ": ", planned[i].second, " planned, ", bytes, " taken");
        });
        if (!ended) throw Failed();
      }
  });
}

/// Checks that ranks that divide the rows of a micro-batch get the results of the whole block, for blocks that declare
/// stages.
template <class Tested>
void check_module_stages() {
  constexpr std::string_view asked =
      "ranks that share the rows, each with its share of the middle, compute what the whole block computes";
  using Run = ModuleRun<device::Cpu, Tested, Fp32>;
  if constexpr (nn::StagedBlock<nn::StagedOf<typename Run::Module>, typename Run::L>) {
    detail::each_size<Tested>([&](const auto& sizes) {
      const ModuleCase<Tested> how{.sizes = sizes};
      const ModuleOutcome expected = run_module<Tested, Fp32>(how, {10, 20});
      using nn::staged;
      const std::int64_t shares = staged(Tested::template make<typename Run::L>(sizes)).shares();
      for (int count = 1; count <= std::min<std::int64_t>(shares, 8); ++count)
        for (int ranks = 1; ranks <= std::min<std::int64_t>(count, sizes.tokens()); ++ranks) {
          if (shares % count != 0 || count % ranks != 0) continue;
          const Sharing sharing{.ranks = ranks, .parts = count / ranks};
          const std::string where = message(how.in_words(), ", ", sharing.in_words());
          const ModuleOutcome found = outcome_or_stop(where, [&](bool& good) {
            Run run(how);
            return staged_outcome_of(run, sharing, where, {10, 20}, good);
          });
          detail::expect_same_outcome<Tested>(asked, where, sizes, found, expected, 3e-5);
        }
    });
  } else {
    GTEST_SKIP() << "it states no stages";
  }
}

template <class Tested>
class ModuleSuite : public ::testing::Test {};

FSDP_SUITE(ModuleSuite, (NamesItsParameters, check_module_parameters<TypeParam>()),
           (GradientsAreDerivatives, check_module_gradients<TypeParam>()),
           (GradientsOfMicroBatchesAddUp, check_module_adds<TypeParam>()),
           (TilesThreadsAndPlacesChangeNothing, check_module_tilings<TypeParam, Fp32>(),
            check_module_tilings<TypeParam, Bf16Mixed>()),
           (InBf16IsTheSameFunction, check_module_in_bf16<TypeParam>()),
           (IsCountedByDryRuns, check_module_costs<TypeParam, Fp32>(), check_module_costs<TypeParam, Bf16Mixed>()),
           (StagesAreTheWholeBlock, check_module_stages<TypeParam>()));

}  // namespace fsdp::testing
