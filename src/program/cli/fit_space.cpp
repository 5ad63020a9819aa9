// SPDX-License-Identifier: Apache-2.0
#include "fit_space.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::cli {
namespace {

constexpr std::size_t most_groups = 4;           // number of sizes of groups of ranks that are tried
constexpr std::int64_t most_micro_batches = 32;  // an estimate simulates each micro-batch
constexpr std::int64_t tokens_of_tiles[] = {16384, 4096, 1024};
constexpr Kept ways_to_keep[] = {{}, {true, 0}, {true, 0.5}, {true, 1}};

/// Returns sizes of groups that fill nodes: the size of a node, and multiples of it; for a single node, fractions of
/// it.
std::vector<std::int64_t> group_sizes(const plan::Cluster& cluster) {
  const std::int64_t first = cluster.nodes() > 1 ? cluster.ranks_of_node() : 2;
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = std::max<std::int64_t>(first, 2); size < cluster.ranks; size *= 2)
    if (cluster.ranks % size == 0 && sizes.size() < most_groups) sizes.push_back(size);
  return sizes;
}

}  // namespace

FitSpace::FitSpace(const Train& asked, const train::FlagSet& flags, const plan::Cluster& cluster)
    : asked_(asked), given_(flags), cluster_(cluster) {
  for (const ShardingChoice& sharding : shardings()) add_families(sharding);
}

/// Strategies with the results of a single rank, up to the order of summation. zero3 is fsdp2 with another layout.
std::vector<ShardingChoice> FitSpace::shardings() const {
  if (given_.is_given("sharding")) return {asked_.stack.sharding};
  std::vector<std::string> names = {"fsdp2", "fsdp2:no-reshard", "zero2", "zero1", "replicated"};
  for (const std::int64_t size : group_sizes(cluster_)) {
    names.push_back(message("hybrid:", size));
    if (cluster_.nodes() > 1) names.push_back(message("fsdp2:", size));
  }
  if (cluster_.ranks == 1) names = {"replicated", "fsdp2"};
  std::vector<ShardingChoice> list;
  for (const std::string& name : names) {
    ShardingChoice sharding = parse_sharding(name);
    sharding.layout = asked_.stack.sharding.layout;
    list.push_back(sharding);
  }
  return list;
}

/// Numbers of ranks that may share a sequence: from one to the ranks of a node; more only if there are too few
/// sequences for these.
std::vector<std::int64_t> FitSpace::sharings() const {
  const std::int64_t batch = asked_.options.batch_size, ranks = cluster_.ranks;
  if (given_.is_given("sequence")) return {asked_.options.sequence.ranks};
  std::vector<std::int64_t> list;
  for (std::int64_t sharing = 1; sharing <= ranks; sharing *= 2) {
    const bool far = sharing > cluster_.ranks_of_node();
    if (ranks % sharing == 0 && batch % (ranks / sharing) == 0 && !(far && !list.empty())) list.push_back(sharing);
  }
  return list;
}

std::vector<std::int64_t> FitSpace::micro_batches(std::int64_t sharing) const {
  const std::int64_t groups = cluster_.ranks / sharing;
  const std::int64_t sequences = asked_.options.batch_size / std::max<std::int64_t>(groups, 1);
  if (given_.is_given("grad-accum")) return {asked_.options.grad_accum};
  std::vector<std::int64_t> list;
  for (std::int64_t count = 1; count <= std::min(sequences, most_micro_batches); ++count)
    if (sequences % count == 0 && (std::has_single_bit(static_cast<std::uint64_t>(count)) || count == sequences))
      list.push_back(count);
  return list;
}

std::vector<tiling::RunTimeTiling> FitSpace::tilings(std::int64_t tokens) const {
  if (given_.is_given("tiling")) return {asked_.stack.tiling};
  std::vector<tiling::RunTimeTiling> list(1);
  for (const std::int64_t tile : tokens_of_tiles)
    if (tile < tokens) list.push_back(tiling::RunTimeTiling::tokens(tile));
  return list;
}

/// On a CPU, inputs are in host memory anyway.
std::vector<Kept> FitSpace::kept() const {
  const auto& own = asked_.options.units;
  std::vector<Kept> list;
  for (const Kept& way : ways_to_keep) {
    if (given_.is_given("recompute") && way.recompute != own.recompute) continue;
    if (given_.is_given("offload") ? way.offload_inputs != 0 : way.offload_inputs != 0 && cluster_.device == "cpu")
      continue;
    list.push_back(way);
    if (given_.is_given("offload")) list.back().offload_inputs = own.offload_inputs;
  }
  if (given_.is_given("offload") && own.offload_inputs > 0)  // offloaded inputs require recomputed blocks
    std::erase_if(list, [](const Kept& way) { return !way.recompute; });
  return list;
}

FitFamily FitSpace::family(const ShardingChoice& sharding, std::int64_t sharing, std::int64_t micro_batches) const {
  FitFamily family{.train = asked_};
  family.train.stack.sharding = sharding;
  family.train.options.sequence.ranks = static_cast<int>(sharing);
  family.train.options.grad_accum = micro_batches;
  const std::int64_t groups = cluster_.ranks / sharing;
  const std::int64_t sequences = asked_.options.batch_size / std::max<std::int64_t>(groups * micro_batches, 1);
  family.tilings = tilings(sequences * asked_.options.seq_len / sharing);
  family.kept = kept();
  return family;
}

/// Maps each number of micro-batches to the fewest ranks per sequence that permit it: more ranks per sequence
/// communicate more, for the same number of tokens at a time.
std::map<std::int64_t, std::int64_t> FitSpace::sharing_of_micro_batches() const {
  std::map<std::int64_t, std::int64_t> sharing_of;
  for (const std::int64_t sharing : sharings())
    for (const std::int64_t count : micro_batches(sharing)) sharing_of.try_emplace(count, sharing);
  return sharing_of;
}

/// Adds the families of one strategy, in the order of their micro-batches: a step of more micro-batches is no faster.
void FitSpace::add_families(const ShardingChoice& sharding) {
  std::optional<std::size_t> after;
  for (const auto& [count, sharing] : sharing_of_micro_batches()) {
    families_.push_back(family(sharding, sharing, pieces_of(sharding) > 0 ? 1 : count));
    families_.back().offloads = offloads();
    families_.back().after = std::exchange(after, families_.size() - 1);
    if (pieces_of(sharding) > 0) return;
  }
}

/// On a CPU, the optimizer state is in host memory anyway.
std::vector<OffloadChoice> FitSpace::offloads() const {
  if (given_.is_given("offload")) return {asked_.stack.offload};
  if (cluster_.device == "cpu") return {OffloadChoice::none};
  return {OffloadChoice::none, OffloadChoice::optimizer};
}

std::vector<plan::Family> FitSpace::families() const {
  std::vector<plan::Family> list;
  for (const FitFamily& family : families_)
    list.push_back({.levels = {static_cast<int>(family.kept.size()), static_cast<int>(family.tilings.size()),
                               static_cast<int>(family.offloads.size())},
                    .after = family.after});
  return list;
}

std::int64_t FitSpace::size() const {
  std::int64_t ways = 0;
  for (const FitFamily& family : families_)
    ways += static_cast<std::int64_t>(family.kept.size() * family.tilings.size() * family.offloads.size());
  return ways;
}

Train FitSpace::train(std::size_t family, const plan::Turned& turned) const {
  const FitFamily& of = families_.at(family);
  Train train = of.train;
  const Kept& kept = of.kept.at(static_cast<std::size_t>(turned.at(0)));
  train.options.units.recompute = kept.recompute;
  train.options.units.offload_inputs = kept.offload_inputs;
  train.stack.tiling = of.tilings.at(static_cast<std::size_t>(turned.at(1)));
  train.stack.offload = of.offloads.at(static_cast<std::size_t>(turned.at(2)));
  return train;
}

std::vector<Train> FitSpace::beside(const Train& train) const {
  if (given_.is_given("sharding")) return {};
  std::vector<Train> list;
  const std::string own = to_text(train.stack.sharding);
  for (const char* const more : {":deferred", ":prefetch=2", ":budget=auto"}) {
    if (std::string_view(more) == ":deferred" && train.options.grad_accum == 1) continue;
    const auto strategy = read_strategy<AnyStrategy>(own + more);
    if (!strategy) continue;
    Train other = train;
    other.stack.sharding.strategy = *strategy;
    list.push_back(std::move(other));
  }
  return list;
}

std::string FitSpace::strategy(std::size_t family) const {
  StackChoice stack;
  stack.sharding = families_.at(family).train.stack.sharding;
  return flags({.stack = stack});
}

std::string FitSpace::flags(const Train& train) const { return command_line(flags_of_way(train)); }

WayFlags flags_of_way(Train train) {
  Train usual;
  train::FlagSet flags, defaults;
  bind(flags, train);
  bind(defaults, usual);
  WayFlags chosen;
  for (const std::string_view name :
       {"sharding", "layout", "sequence", "grad-accum", "recompute", "offload", "tiling"}) {
    const train::Texts texts = flags.find(name)->get();
    if (name == "sharding" || texts != defaults.find(name)->get()) chosen.push_back({std::string(name), texts.at(0)});
  }
  return chosen;
}

std::string command_line(const WayFlags& flags) {
  std::string text;
  for (const auto& [name, value] : flags)
    text += message(text.empty() ? "--" : " --", name, value == "true" ? "" : " " + value);
  return text;
}

}  // namespace fsdp::cli
