// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/testing/optimizer.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>

#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/testing/strategy_runs.hpp>

namespace fsdp::testing {
namespace {

enum class OptimizerPlace : std::uint8_t {
  replicated,  ///< every rank updates all parameters
  sharded,     ///< FullyShard; an optimizer that states blocks uses buffer::Blocks, which does not split them
  offloaded,   ///< sharded, in host memory
};

struct OptimizerRun {
  OptimizerPlace place = OptimizerPlace::sharded;
  StrategyCase how = {};
  int steps = 4;  ///< total number of steps, including those before the checkpoint from which the run resumes
  double lr = 1e-2;
  bool as_ranks = false;               ///< whether one rank uses the batches of several ranks as its micro-batches
  std::filesystem::path save_to = {};  ///< folder for a checkpoint after the last step; empty: none
  std::filesystem::path resume = {};   ///< folder of the checkpoint from which to resume; empty: none
};

template <class Strategy>
RunResult train_by(const Strategy& strategy, const AnyOptimizer& optimizer, const OptimizerRun& run) {
  const StrategyTask<Strategy> task{.sharding = strategy, .how = run.how, .as_ranks = run.as_ranks};
  return train_model(run.how.ranks, task,
                     {.steps = run.steps, .lr = run.lr, .save_to = run.save_to, .resume = run.resume}, optimizer);
}

RunResult train_with(const AnyOptimizer& optimizer, const OptimizerRun& run) {
  RunTimeAny strategy{.strategy = FullyShard<>{}};
  const StepWork work = optimizer.step_work();
  if (std::ranges::any_of(stepped_parameters(),
                          [&](const Parameter& parameter) { return work.block_of(parameter) > 0; }))
    strategy.other_layout = buffer::Blocks{};
  if (run.place == OptimizerPlace::offloaded) return train_by(Offload<RunTimeAny>{strategy}, optimizer, run);
  if (run.place == OptimizerPlace::replicated) strategy = {.strategy = Replicated{}};
  return train_by(strategy, optimizer, run);
}

/// Trains. An error of the run is a failure, and nullopt is returned.
std::optional<RunResult> trained(std::string_view asked, const Where& where, const AnyOptimizer& optimizer,
                                 const OptimizerRun& run) {
  return result_of(asked, where, [&] { return train_with(optimizer, run); });
}

/// Compares the bytes of the first rank only: other ranks may use less than planned, because they have fewer targets.
bool expect_planned_bytes_of_first(std::string_view where, const RunResult& found) {
  return expect_planned_bytes(where, 0, found.taken[0], found.planned[0]);
}

}  // namespace

void check_optimizer_on_shards(const AnyOptimizer& optimizer, double lr) {
  constexpr std::string_view asked =
      "ranks that step their shards alone (whole blocks, if it states any) have the losses, weights and states of "
      "ranks that step everything, to the bit";
  const std::vector<StrategyCase> cases = {{.ranks = 2},
                                           {.ranks = 3},
                                           {.ranks = 3, .tied = true},
                                           {.ranks = 2, .units = {.blocks_per_unit = 2}},
                                           {.ranks = 3, .units = {.frozen = {"model.layers.1.*"}}}};
  for (const StrategyCase& how : cases) {
    const std::string where = how.in_words();
    const OptimizerRun all{.place = OptimizerPlace::replicated, .how = how, .lr = lr};
    const auto expected = trained(asked, where, optimizer, all);
    if (!expected || !expect_planned_bytes_of_first(message(where, ", every rank stepping all"), *expected)) return;
    const auto found = trained(asked, where, optimizer, {.how = how, .lr = lr});
    if (!found || !expect_same_run(asked, where, *found, *expected) || !expect_planned_bytes_of_first(where, *found))
      return;
  }
}

void check_optimizer_learns(const AnyOptimizer& optimizer, double lr) {
  const std::string where = message("learning rate ", lr);
  constexpr std::string_view learns = "the loss on the same tokens falls in four steps";
  constexpr std::string_view follows =
      "three ranks have the losses of one rank on the same tokens, within 1e-3 of them";
  const auto found = trained(learns, where, optimizer, {.how = {.ranks = 3}, .lr = lr});
  if (!found) return;
  if (!(found->losses.back() < found->losses.front()))
    return void(
        fail(learns, where, "losses from ", in_words(found->losses.front()), " to ", in_words(found->losses.back())));
  const OptimizerRun alone{.how = {.ranks = 1, .micro_batches = 3}, .lr = lr, .as_ranks = true};
  const auto expected = trained(follows, where, optimizer, alone);
  for (std::size_t step = 0; expected && step < expected->losses.size(); ++step)
    if (!(std::abs(found->losses[step] - expected->losses[step]) <= 1e-3 * std::abs(expected->losses[step])))
      return void(fail(follows, where, "the loss of step ", step, " is ", in_words(found->losses[step]), " instead of ",
                       in_words(expected->losses[step])));
}

void check_optimizer_resumes(const AnyOptimizer& optimizer, double lr) {
  constexpr std::string_view asked =
      "a run that goes on from a checkpoint has the losses, weights and states of a run that never stopped, to the "
      "bit: an optimizer keeps nothing but its states";
  const StrategyCase how{.ranks = 3};
  const std::string where = message(how.in_words(), ", six steps, a checkpoint after three");
  check_resumes(
      asked, where, [&](int steps, const std::filesystem::path& save_to, const std::filesystem::path& resume) {
        return train_with(optimizer, {.how = how, .steps = steps, .lr = lr, .save_to = save_to, .resume = resume});
      });
}

void check_optimizer_offloads(const AnyOptimizer& optimizer, double lr) {
  constexpr std::string_view asked =
      "an optimizer whose weights and states live in host memory has the bits of one on the device";
  const StrategyCase how{.ranks = 3};
  const std::string where = how.in_words();
  const OptimizerRun offloaded{.place = OptimizerPlace::offloaded, .how = how, .lr = lr};
  const auto expected = trained(asked, where, optimizer, {.how = how, .lr = lr});
  const auto found = trained(asked, where, optimizer, offloaded);
  if (expected && found && expect_same_run(asked, where, *found, *expected))
    expect_planned_bytes_of_first(where, *found);
}

}  // namespace fsdp::testing
