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
#include <tessera/fsdp/testing/staged_run.hpp>
#include <tessera/fsdp/testing/suite.hpp>

namespace fsdp::testing {
namespace detail {

FSDP_HAS_MEMBER(sizes)

template <class Tested>
std::vector<SizesOf<Tested>> module_sizes_of() {
  if constexpr (has_sizes<Tested>())
    return Tested::sizes();
  else
    return default_module_sizes();
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
/// are compared on that scale.
template <class Tested, class Tiling>
bool expect_same_outcome(std::string_view asked, const ModuleCase<Tested, Tiling>& how, const ModuleOutcome& found,
                         const ModuleOutcome& expected, double bound, std::string_view more = "") {
  const std::string where = more.empty() ? how.in_words() : message(how.in_words(), ", ", more);
  double largest = 0;
  for (const Numbers& gradient : expected.gradients) largest = std::max(largest, norm_of(gradient));
  const auto expect = [&](const std::string& which, const Numbers& a, const Numbers& b) {
    const double error = relative_error(a, b, 2e-3 * largest);
    if (!std::isfinite(error))
      return fail(asked, where,
                  message(which,
                          " holds numbers that are not finite: memory was read that nobody had written (it holds "
                          "NaN here), or the values overflow"));
    return error <= bound || fail(asked, where,
                                  message(which, " differs by ", in_words(error), " of its norm; at most ",
                                          in_words(bound), " is rounding"));
  };
  for (std::size_t i = 0; i < expected.y.size(); ++i)
    if (!expect("y", found.y[i], expected.y[i]) || !expect("dx", found.dx[i], expected.dx[i])) return false;
  const auto parameters = module_parameters<Tested>(how.sizes);
  for (std::size_t i = 0; i < expected.gradients.size(); ++i)
    if (!expect(message("the gradient of ", parameters[i].name), found.gradients[i], expected.gradients[i]))
      return false;
  return true;
}

/// The sum over dy times y in float64, as a function of one element of the input or of a weight.
template <class Tested>
class ModuleLoss {
  using Run = ModuleRun<device::Cpu, Tested, Fp32>;

 public:
  static constexpr std::size_t input = static_cast<std::size_t>(-1);

  ModuleLoss(const ModuleCase<Tested>& how, std::uint64_t seed)
      : run_(how), weights_(module_weights<float>(run_.module)) {
    const std::int64_t size = how.sizes.tokens() * how.sizes.hidden;
    x_ = rounded_numbers<float>(seed, size);
    dy_ = rounded_numbers<float>(seed + 1, size);
    run_.stream.set(0, x_);
    for (std::size_t i = 0; i < weights_.size(); ++i) run_.fields.weights.set(i, weights_[i]);
  }
  const Numbers& values(std::size_t which) const { return which == input ? x_ : weights_[which]; }
  double operator()(std::size_t which, std::size_t element, double by) {
    float& number = (which == input ? run_.stream[0].data() : run_.fields.weights[which].data())[element];
    const float before = number;
    number = static_cast<float>(values(which)[element] + by);
    const auto low = run_.rank.arena.mark(device::Cpu::Arena::End::low);
    run_.forward();
    run_.rank.arena.release(device::Cpu::Arena::End::low, low);
    number = before;
    const Numbers y = run_.stream.values(1);
    double sum = 0;
    size_ = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += dy_[i] * y[i];
      size_ += dy_[i] * y[i] * dy_[i] * y[i];
    }
    return sum;
  }
  /// Returns the derivative by central differences at two step sizes, extrapolated so that the second-order error
  /// cancels.
  double derivative(std::size_t which, std::size_t element) {
    const auto difference = [&](double h) {
      return ((*this)(which, element, h) - (*this)(which, element, -h)) / (2 * h);
    };
    return (4 * difference(step / 2) - difference(step)) / 3;
  }
  /// Returns the error in a derivative that rounding to float may cause.
  double noise() const { return 1e-5 * std::sqrt(size_) / step; }

  static constexpr double step = 0x1p-5;

 private:
  Run run_;
  std::vector<Numbers> weights_;
  Numbers x_, dy_;
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
  for (const auto& sizes : detail::module_sizes_of<Tested>()) {
    std::set<std::string> names;
    std::vector<nn::Parameter> parameters;
    if (!report_errors(module_ends_without_error, sizes.in_words(),
                       [&] { parameters = detail::module_parameters<Tested>(sizes); }))
      return;
    for (const nn::Parameter& parameter : parameters) {
      const std::string name = parameter.name;
      if (!parameter.present() && parameter.shape == Shape{0}) continue;
      if (name.empty()) return void(fail(asked, sizes.in_words(), "a parameter without a name"));
      if (!names.insert(name).second) return void(fail(asked, sizes.in_words(), message("two are called ", name)));
      if (parameter.shape.numel() < 1)
        return void(fail(asked, sizes.in_words(), message(name, " has ", parameter.shape.numel(), " elements")));
    }
  }
}

/// Checks that backward computes the derivatives of forward.
template <class Tested>
void check_module_gradients() {
  constexpr std::string_view asked =
      "backward gives the derivatives of forward: central differences of the sum of dy times y, in every weight and in "
      "x";
  for (const auto& sizes : detail::module_sizes_of<Tested>()) {
    const ModuleCase<Tested> how{.sizes = sizes};
    bool good = true;
    const ModuleOutcome outcome = run_module<Tested, Fp32>(how, {10}, good);
    if (!good) return;
    detail::ModuleLoss<Tested> loss(how, 10);
    const auto parameters = detail::module_parameters<Tested>(sizes);
    for (std::size_t i = 0; i <= parameters.size(); ++i) {
      const bool input = i == parameters.size();
      if (!input && !parameters[i].present()) continue;
      const Numbers& gradient = input ? outcome.dx.front() : outcome.gradients[i];
      const std::string name = input ? "x" : parameters[i].name;
      const double size = detail::norm_of(gradient) / std::sqrt(static_cast<double>(gradient.size()));
      for (const std::size_t element : detail::elements_to_move(gradient, sizes.tokens())) {
        const double expected = loss.derivative(input ? loss.input : i, element);
        const double bound = 1e-2 * (std::abs(expected) + size) + loss.noise();
        if (!(std::abs(gradient[element] - expected) <= bound))
          return void(fail(asked, how.in_words(),
                           message("the gradient of ", name, "[", element, "] is ", in_words(gradient[element]),
                                   "; moving that number says ", in_words(expected))));
      }
    }
  }
}

/// Checks that the first write of a gradient overwrites its memory and that later writes accumulate.
template <class Tested>
void check_module_adds() {
  constexpr std::string_view asked =
      "gradients of micro-batches add up: the first write replaces what the memory held, later ones add "
      "(GradientView::next)";
  for (const auto& sizes : detail::module_sizes_of<Tested>()) {
    const ModuleCase<Tested> how{.sizes = sizes};
    bool good = true;
    const ModuleOutcome first = run_module<Tested, Fp32>(how, {10}, good),
                        second = run_module<Tested, Fp32>(how, {20}, good),
                        both = run_module<Tested, Fp32>(how, {10, 20}, good);
    if (!good) return;
    ModuleOutcome expected{
        .y = {first.y[0], second.y[0]}, .dx = {first.dx[0], second.dx[0]}, .gradients = first.gradients};
    for (std::size_t i = 0; i < expected.gradients.size(); ++i)
      for (std::size_t k = 0; k < expected.gradients[i].size(); ++k) expected.gradients[i][k] += second.gradients[i][k];
    if (!detail::expect_same_outcome<Tested>(asked, how, both, expected, 2e-5)) return;
  }
}

/// Checks that results do not depend on tiling, on the placement of weights, or on the number of threads.
template <class Tested, class Precision>
void check_module_tilings() {
  constexpr std::string_view asked =
      "y, dx and gradients are those of the untiled module on one thread with weights side by side";
  using tiling::RunTimeTiling;
  for (const auto& sizes : detail::module_sizes_of<Tested>()) {
    bool good = true;
    const ModuleOutcome expected = run_module<Tested, Precision>({.sizes = sizes}, {10, 20}, good);
    for (const RunTimeTiling& policy : {RunTimeTiling{}, RunTimeTiling::tiles(2), RunTimeTiling::tiles(5),
                                        RunTimeTiling::tokens(3), RunTimeTiling::tokens(64)})
      for (const Placing placing : {Placing::adjacent, Placing::padded}) {
        const ModuleCase<Tested> how{
            .sizes = sizes, .tiling = policy, .placing = placing, .threads = placing == Placing::padded ? 2 : 1};
        const ModuleOutcome found = run_module<Tested, Precision>(how, {10, 20}, good);
        constexpr double bound = std::is_same_v<Precision, Fp32> ? 3e-5 : 3e-2;
        if (!good || !detail::expect_same_outcome<Tested>(asked, how, found, expected, bound)) return;
      }
  }
}

/// Checks that the module computes the same function in bf16, within rounding.
template <class Tested>
void check_module_in_bf16() {
  constexpr std::string_view asked = "in bf16 a module gives what it gives in float, within bf16's rounding";
  for (const auto& sizes : detail::module_sizes_of<Tested>()) {
    const ModuleCase<Tested> how{.sizes = sizes};
    bool good = true;
    const ModuleOutcome expected = run_module<Tested, Fp32>(how, {10}, good),
                        found = run_module<Tested, Bf16Mixed>(how, {10}, good);
    if (!good || !detail::expect_same_outcome<Tested>(asked, how, found, expected, 8e-2)) return;
  }
}

/// Checks that a dry run counts the same costs as a run on the CPU.
template <class Tested, class Precision>
void check_module_costs() {
  constexpr std::string_view asked =
      "a dry run (device Meta) counts the bytes and the work of the CPU: what a plan says is what a run takes";
  using tiling::RunTimeTiling;
  for (const auto& sizes : detail::module_sizes_of<Tested>())
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
        decltype(costs_on(device::Cpu{})) planned, taken;
        if (!report_errors(module_ends_without_error, how.in_words(), [&] {
              planned = costs_on(device::Meta{});
              taken = costs_on(device::Cpu{});
            }))
          return;
        for (std::size_t i = 0; i < taken.size(); ++i)
          if (const auto& [what, bytes] = taken[i]; bytes != planned[i].second)
            return void(
                fail(asked, how.in_words(), message(what, ": ", planned[i].second, " planned, ", bytes, " taken")));
      }
}

/// Checks that ranks that divide the rows of a micro-batch get the results of the whole block, for blocks that declare
/// stages.
template <class Tested>
void check_module_stages() {
  constexpr std::string_view asked =
      "ranks that share the rows, each with its share of the middle, compute what the whole block computes";
  using Run = ModuleRun<device::Cpu, Tested, Fp32>;
  if constexpr (nn::StagedBlock<nn::StagedOf<typename Run::Module>, typename Run::L>) {
    for (const auto& sizes : detail::module_sizes_of<Tested>()) {
      bool good = true;
      const ModuleCase<Tested> how{.sizes = sizes};
      const ModuleOutcome expected = run_module<Tested, Fp32>(how, {10, 20}, good);
      using nn::staged;
      const std::int64_t shares = staged(Tested::template make<typename Run::L>(sizes)).shares();
      for (int count = 1; count <= std::min<std::int64_t>(shares, 8) && good; ++count)
        for (int ranks = 1; ranks <= std::min<std::int64_t>(count, sizes.tokens()) && good; ++ranks) {
          if (shares % count != 0 || count % ranks != 0) continue;
          const Sharing sharing{.ranks = ranks, .parts = count / ranks};
          const std::string where = message(how.in_words(), ", ", sharing.in_words());
          ModuleOutcome found;
          good = report_errors(module_ends_without_error, where,
                               [&] {
                                 Run run(how);
                                 found = staged_outcome_of(run, sharing, where, {10, 20}, good);
                               }) &&
                 good && detail::expect_same_outcome<Tested>(asked, how, found, expected, 3e-5, sharing.in_words());
        }
      if (!good) return;
    }
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
