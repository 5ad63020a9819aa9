// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/sharded.hpp>

#include <array>
#include <cstddef>
#include <numeric>

namespace fsdp::detail {
namespace {

std::string text_of(const Statistic& statistic) {
  static constexpr std::array merges{"own", "mean", "first"};
  return message("statistic ", statistic.name, " = ", shape_text(statistic.shape), ", ",
                 merges[static_cast<std::size_t>(statistic.merge)], ", initial values of kind ",
                 static_cast<int>(statistic.initial.kind), " ", exact_text(statistic.initial.deviation));
}

}  // namespace

void require_same_settings(const comm::Ranks& ranks, std::string_view optimizer, std::string_view constants,
                           const device::StepRules& rules, const std::vector<Statistic>& statistics) {
  if (ranks.size() == 1) return;
  std::string mine = message("optimizer = ", optimizer, "\nclip = ", exact_text(rules.clip),
                             "\nskips_overflow = ", rules.skips_overflow, "\n", constants);
  for (const Statistic& statistic : statistics) mine += text_of(statistic) + "\n";
  comm::require_same_texts(ranks.monitor(), comm::gather_texts(ranks, mine, "settings"), "ranks have other settings",
                           "give all ranks the same ones");
}

void require_budget(const PlannedBytes& planned, std::int64_t budget, int rank) {
  require<MemoryError>(budget == 0 || planned.sum() <= budget, "rank ", rank, " would hold ", planned.sum(),
                       " bytes, and its budget is ", budget,
                       "; raise the budget, or take more ranks or a strategy that shards more");
}

std::vector<Order> chain_of(const std::vector<Unit>& units) {
  std::vector<int> uses;
  for (int unit = 0; unit < static_cast<int>(units.size()); ++unit)
    if (units[static_cast<std::size_t>(unit)].gathered) uses.push_back(unit);
  return {mirrored(uses)};
}

void set_pieces(PassPlan& passes, int pieces, int ranks, const std::vector<Statistic>& statistics) {
  require<InputError>(pieces == 0 || statistics.empty(),
                      "sharded: statistics follow from the pieces that each rank computes, so that they would depend "
                      "on the ranks; leave either them or the strategy's pieces out");
  passes.fewer = pieces == 0;
  if (pieces > 0 && passes.micro_batches == 1) passes.micro_batches = sharding::micro_batches_of(pieces, ranks);
}

void require_no_pass(const PassProgress& progress, const char* what) {
  require(progress.state != PassProgress::State::running, what,
          ": a pass is under way, whose units have been handed out with the weights as they were; finish it first");
}

void require_gradients(const PassProgress& progress) {
  require(progress.state == PassProgress::State::idle,
          "step: the last pass was neither finished nor forfeited, so that gradients may still be in use");
  require(progress.has_gradients,
          "step: no training pass was finished since the last one; its gradients would not be those of a whole step");
}

int own_losses(const ModuleState& module) { return module.step_pieces() == 0 ? 1 : module.own_micro_batches(); }

std::int64_t losses_of(const ModuleState& module) {
  return module.step_pieces() > 0 ? module.settings().passes.micro_batches : 1;
}

void require_losses(std::size_t losses, ModuleState& module) {
  const int given = static_cast<int>(losses), expected = own_losses(module);
  require(given == expected || (module.progress().forfeited && given <= expected), "step: ", given,
          " losses are given, and ", expected,
          module.step_pieces() > 0 ? " are needed: one for each piece that this rank computed" : " is needed");
}

void require_elements(const Parameter& parameter, std::size_t given) {
  require<InputError>(static_cast<std::int64_t>(given) == parameter.shape.numel(), "set: '", parameter.name, "' has ",
                      parameter.shape.numel(), " elements, and ", given, " are given");
}

void throw_diverged(std::int64_t step, const device::StepDecision& decision) {
  throw DivergedError(message("step ", step, ": the loss is ", decision.loss, " and the gradient norm is ",
                              decision.norm, "; no weight was changed"));
}

}  // namespace fsdp::detail

std::int64_t fsdp::PlannedBytes::sum() const { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }
