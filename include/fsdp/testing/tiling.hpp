// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of a tiling policy: plans cover every token once and in order, state their true costs, and are pure.
///
///     using namespace fsdp::testing;
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, TilingSuite, mine::Tiles);
///
/// The parameter is a policy with a default constructor, or a struct with `static std::vector<Policy> policies()`, the
/// values to test. A policy may reject some problems with an InputError, such as a budget that is too small for any
/// tile, but not all of them. An MLP is run with the policy's plans and must have the gradients of the untiled MLP.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/nn/swiglu_mlp.hpp>
#include <tessera/fsdp/testing/module.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/tiling/policies.hpp>

namespace fsdp::testing {

/// A problem for tiling policies, with a description of its unit.
struct TilingProblem {
  std::string_view unit;
  tiling::Problem problem;

  /// Returns a description such as "65 tokens of a unit ..., 7 times".
  std::string in_words() const {
    return message(problem.tokens, problem.tokens == 1 ? " token of " : " tokens of ", unit,
                   problem.repeats == 1 ? "" : message(", ", problem.repeats, " times"));
  }
};

/// Returns problems: even and odd lengths, of units that keep much, keep nothing, or may be cut into blocks of columns.
inline std::vector<TilingProblem> tiling_problems() {
  const TilingProblem units[] = {
      {.unit = "a unit of 7 bytes kept and 10 bytes of workspace per token",
       .problem = {.kept_bytes_per_token = 7, .tile_bytes_per_token = 10, .recomputed_flops_per_token = 3}},
      {.unit = "an MLP with 64 hidden and 192 intermediate columns in bf16",
       .problem = {.columns = 192,
                   .kept_bytes_per_token = 2 * 192 * 2,
                   .tile_bytes_per_token = 64 * 2,
                   .tile_bytes_per_token_column = 3 * 2,
                   .blocked_bytes_per_token = 64 * 4,
                   .recomputed_flops_per_token = 4 * 64 * 192,
                   .traffic_per_tile = 42 * 64 * 192}},
      {.unit = "a head with 5000 columns of logits that keeps nothing",
       .problem = {.columns = 5000,
                   .tile_bytes_per_token = 8,
                   .tile_bytes_per_token_column = 2,
                   .blocked_bytes_per_token = 16,
                   .traffic_per_tile = 100}}};
  std::vector<TilingProblem> problems;
  for (const std::int64_t tokens : {1, 2, 3, 5, 7, 9, 63, 64, 65, 1000, 4096, 4097, 131072})
    for (const std::int64_t repeats : {1, 7})
      for (TilingProblem of : units) {
        of.problem.tokens = tokens;
        of.problem.repeats = repeats;
        problems.push_back(of);
      }
  return problems;
}

/// Returns the plan, or nullopt if the policy rejects the problem.
std::optional<tiling::TilePlan> plan_unless_refused(const auto& policy, const tiling::Problem& problem) {
  try {
    return policy.plan(problem);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

namespace detail {

FSDP_TESTED_VALUES(policies, policy, numbers, Policy)

inline std::string plan_in_words(const std::optional<tiling::TilePlan>& plan) {
  if (!plan) return "none, but an InputError";
  std::ostringstream text;
  text << *plan;
  return text.str();
}

inline bool expect_cover(const TilingProblem& of, const tiling::TilePlan& plan) {
  constexpr std::string_view asked =
      "the tiles of a plan cover all tokens, each once and in order, and no tile is empty";
  const std::string where = of.in_words();
  std::int64_t end = 0;
  for (std::size_t i = 0; i < plan.tiles.size(); ++i) {
    const tiling::Tile& tile = plan.tiles[i];
    const std::string which = message("tile ", i, " of ", plan.tiles.size(), ", [", tile.begin, ", ", tile.end, "), ");
    if (tile.tokens() <= 0) return fail(asked, where, which + "has no token");
    if (tile.begin > end) return fail(asked, where, which, "leaves out tokens [", end, ", ", tile.begin, ")");
    if (tile.begin < end) return fail(asked, where, which, "overlaps the tiles before it, which end at ", end);
    end = tile.end;
  }
  return end == of.problem.tokens || fail(asked, where, "the last tile ends at ", end);
}

inline bool expect_price(const TilingProblem& of, const tiling::TilePlan& plan) {
  constexpr std::string_view asked =
      "the bytes, recomputed FLOPs and repeats of a plan are those of its tiles, as tiling::with_costs makes them";
  const tiling::TilePlan priced = tiling::with_costs(of.problem, plan.tiles, plan.columns_per_block);
  const auto expect = [&](std::string_view which, std::int64_t found, std::int64_t expected) {
    return expect_value(asked, of, which, found, expected);
  };
  return expect("tile_bytes, the workspace of the largest tile,", plan.tile_bytes, priced.tile_bytes) &&
         expect("kept_bytes, the activations of kept tiles,", plan.kept_bytes, priced.kept_bytes) &&
         expect("recomputed_flops", plan.recomputed_flops, priced.recomputed_flops) &&
         expect("repeats", plan.repeats, of.problem.repeats);
}

inline bool expect_limits(const TilingProblem& of, const tiling::TilePlan& plan) {
  const std::string where = of.in_words();
  if (plan.longest_tile() < 64 && plan.tiles.size() > 64)
    return fail(
        "at most 64 tiles have less than 64 tokens (Problem::fewest_tile_tokens): every tile adds to gradients in "
        "float",
        where, plan.tiles.size(), " tiles of up to ", plan.longest_tile(), " tokens");
  if (plan.columns_per_block < 0 || (plan.columns_per_block > 0 && plan.columns_per_block >= of.problem.columns))
    return fail("columns_per_block is less than the columns of the unit, or 0, which means all", where,
                plan.columns_per_block, " of ", of.problem.columns, " columns");
  return plan.columns_per_block == 0 || plan.kept_tokens() == 0 ||
         fail("a plan with blocks of columns keeps no tile: kept activations have all columns", where, "blocks of ",
              plan.columns_per_block, " columns, and ", plan.kept_tokens(), " kept tokens");
}

inline bool expect_no_more_than_untiled(const TilingProblem& of, const tiling::TilePlan& plan) {
  const tiling::TilePlan untiled = tiling::Untiled{}.plan(of.problem);
  return plan.peak_bytes() <= untiled.peak_bytes() ||
         fail("no plan takes more bytes than tiling::Untiled; where a cut saves nothing, take the plan of Untiled", of,
              plan.peak_bytes(), " bytes (", plan_in_words(plan), ") instead of at most ", untiled.peak_bytes());
}

struct MlpInTiles {
  template <class L>
  static nn::SwiGluMlp<L> make(const ModuleSizes& sizes) {
    return {{}, sizes.hidden, 2 * sizes.hidden + 1};
  }
};

}  // namespace detail

/// Checks all requirements on a plan.
inline bool expect_valid_plan(const TilingProblem& of, const tiling::TilePlan& plan) {
  return detail::expect_cover(of, plan) && detail::expect_price(of, plan) && detail::expect_limits(of, plan) &&
         detail::expect_no_more_than_untiled(of, plan);
}

/// Calls expect(problem, plan), for all problems that the policy does not reject, until one fails.
template <class Policy, class Expect>
void check_plans(const Policy& policy, Expect expect) {
  static_assert(tiling::check_tiling<Policy>());
  std::size_t planned = 0;
  const auto problems = tiling_problems();
  for (const TilingProblem& of : problems)
    if (const auto plan = plan_unless_refused(policy, of.problem)) {
      ++planned;
      if (!expect(of, *plan)) return;
    }
  if (planned == 0)
    fail("a policy makes plans", message(problems.size(), " problems"), "an InputError for each of them");
}

/// Checks that tiles cover every token once and in order.
void check_tiling_covers(const auto& policy) { check_plans(policy, detail::expect_cover); }
/// Checks that a plan states the costs of its tiles.
void check_tiling_prices(const auto& policy) { check_plans(policy, detail::expect_price); }
/// Checks that tiles are not so short that sums in float lose too much precision, and that blocks of columns are valid.
void check_tiling_limits(const auto& policy) { check_plans(policy, detail::expect_limits); }
/// Checks that no plan needs more bytes than the plan of Untiled.
void check_tiling_saves(const auto& policy) { check_plans(policy, detail::expect_no_more_than_untiled); }

/// Checks that planning is deterministic: each rank plans separately, and backward plans again, and all must get the
/// same tiles.
template <class Policy>
void check_tiling_is_pure(const Policy& policy) {
  constexpr std::string_view asked =
      "plan is a pure function: a policy, and a copy of it, make the same plan for the same problem whenever they are "
      "asked";
  const auto problems = tiling_problems();
  std::vector<std::optional<tiling::TilePlan>> plans;
  for (const TilingProblem& of : problems) plans.push_back(plan_unless_refused(policy, of.problem));
  const Policy copy = policy;
  for (std::size_t i = problems.size(); i-- > 0;)
    for (const Policy* again : {&policy, &copy})
      if (const auto plan = plan_unless_refused(*again, problems[i].problem); plan != plans[i])
        return void(fail(asked, problems[i].in_words(), "first ", detail::plan_in_words(plans[i]), "; then, from ",
                         again == &copy ? "a copy" : "the same policy", ", ", detail::plan_in_words(plan),
                         plan && plans[i] && plan->tiles != plans[i]->tiles ? "; the borders differ" : ""));
}

/// Checks that a problem without tokens has a plan without tiles.
void check_tiling_of_nothing(const auto& policy) {
  const auto plan = plan_unless_refused(policy, {.tile_bytes_per_token = 10});
  if (!plan || !plan->tiles.empty() || plan->peak_bytes() != 0)
    fail("a sequence without tokens has a plan without tiles and bytes", "0 tokens", detail::plan_in_words(plan));
}

/// Checks that an MLP that runs with the policy's plans has the results of the untiled MLP.
template <class Policy>
void check_tiling_gradients(const Policy& policy) {
  constexpr std::string_view asked =
      "an MLP that is cut by the policy gives y, dx and the gradients of the untiled one";
  for (const ModuleSizes& sizes : {ModuleSizes{1, 1, 12}, ModuleSizes{1, 7, 12}, ModuleSizes{2, 65, 24}}) {
    const std::string where = TiledModuleCase<ModuleSizes, Policy>{.sizes = sizes, .tiling = policy}.in_words();
    try {
      const ModuleOutcome expected = run_module<detail::MlpInTiles, Fp32>({.sizes = sizes}, {10, 20});
      bool good = true;
      ModuleRun<device::Cpu, detail::MlpInTiles, Fp32> run({.sizes = sizes}, std::make_shared<nn::TilePlans>(policy));
      const ModuleOutcome found = outcome_of(run, where, {10, 20}, good);
      if (!good) return;
      detail::expect_same_outcome<detail::MlpInTiles>(asked, where, sizes, found, expected, 3e-5);
    } catch (const Failed&) {
      return;
    } catch (const std::exception& error) {
      const auto problem = detail::MlpInTiles::make<nn::Local<device::Cpu, Fp32>>(sizes).problem(sizes.tokens());
      const bool refuses = dynamic_cast<const InputError*>(&error) && !plan_unless_refused(policy, problem);
      if (!refuses) return void(fail(asked, where, "an error: ", error.what()));
    }
  }
}

/// The suite. Its parameter is a policy with a default constructor, or a struct with policies().
template <class Tested>
class TilingSuite : public detail::Tested_policies<Tested> {};

FSDP_SUITE(TilingSuite, (CoversEveryTokenOnceAndInOrder, this->each(check_tiling_covers)),
           (SaysWhatItsTilesCost, this->each(check_tiling_prices)),
           (KeepsTheLimitsOfTheProblem, this->each(check_tiling_limits)),
           (TakesNoMoreBytesThanUntiled, this->each(check_tiling_saves)),
           (IsAPureFunction, this->each(check_tiling_is_pure)),
           (CutsNothingIntoNoTile, this->each(check_tiling_of_nothing)),
           (ChangesNoGradient, this->each(check_tiling_gradients)));

}  // namespace fsdp::testing
