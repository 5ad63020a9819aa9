// SPDX-License-Identifier: Apache-2.0
#include "fit.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp::cli {
namespace {

constexpr std::size_t most_groups = 4;           // number of sizes of groups of ranks that are tried
constexpr std::int64_t most_micro_batches = 32;  // an estimate simulates each micro-batch
constexpr std::int64_t tokens_of_tiles[] = {16384, 4096, 1024};
constexpr Kept ways_to_keep[] = {{}, {true, 0}, {true, 0.5}, {true, 1}};

/// The choices that a command's flags leave open on a cluster.
struct Open {
  const Train& asked;
  const train::FlagSet& given;
  const plan::Cluster& cluster;

  /// Strategies with the results of a single rank, up to the order of summation. zero3 is fsdp2 with another layout.
  /// Groups are nodes or several of them; on a single node fractions of it.
  std::vector<ShardingChoice> shardings() const {
    if (given.is_given("sharding")) return {asked.stack.sharding};
    std::vector<std::string> names = {"fsdp2", "fsdp2:no-reshard", "zero2", "zero1", "replicated"};
    const std::int64_t first = cluster.nodes() > 1 ? std::max<std::int64_t>(cluster.ranks_of_node(), 2) : 2;
    std::size_t groups = 0;
    for (std::int64_t size = first; size < cluster.ranks && groups < most_groups; size *= 2) {
      if (cluster.ranks % size != 0) continue;
      ++groups;
      names.push_back(message("hybrid:", size));
      if (cluster.nodes() > 1) names.push_back(message("fsdp2:", size));
    }
    if (cluster.ranks == 1) names = {"replicated", "fsdp2"};
    std::vector<ShardingChoice> list;
    for (const std::string& name : names) {
      list.push_back(asked.stack.sharding);
      list.back().strategy = parse_sharding(name).strategy;
    }
    return list;
  }

  /// Numbers of ranks that may share a sequence: up to a node's ranks; more only for too few sequences.
  std::vector<std::int64_t> sharings() const {
    const std::int64_t batch = asked.options.batch_size, ranks = cluster.ranks;
    if (given.is_given("sequence")) return {asked.options.sequence.ranks};
    std::vector<std::int64_t> list;
    for (std::int64_t sharing = 1; sharing <= ranks; sharing *= 2) {
      const bool far = sharing > cluster.ranks_of_node();
      if (ranks % sharing == 0 && batch % (ranks / sharing) == 0 && !(far && !list.empty())) list.push_back(sharing);
    }
    return list;
  }

  /// Returns the number of sequences per micro-batch.
  std::int64_t sequences(std::int64_t sharing, std::int64_t micro_batches) const {
    return asked.options.batch_size / std::max<std::int64_t>(cluster.ranks / sharing * micro_batches, 1);
  }

  /// Maps each number of micro-batches to the fewest ranks per sequence that permit it: more ranks per sequence
  /// communicate more, for the same number of tokens at a time.
  std::map<std::int64_t, std::int64_t> sharing_of_micro_batches() const {
    std::map<std::int64_t, std::int64_t> sharing_of;
    for (const std::int64_t sharing : sharings()) {
      if (given.is_given("grad-accum")) sharing_of.try_emplace(asked.options.grad_accum, sharing);
      const std::int64_t all = given.is_given("grad-accum") ? 0 : sequences(sharing, 1);
      for (std::int64_t count = 1; count <= std::min(all, most_micro_batches); ++count)
        if (all % count == 0 && (std::has_single_bit(static_cast<std::uint64_t>(count)) || count == all))
          sharing_of.try_emplace(count, sharing);
    }
    return sharing_of;
  }

  std::vector<tiling::RunTimeTiling> tilings(std::int64_t tokens) const {
    if (given.is_given("tiling")) return {asked.stack.tiling};
    std::vector<tiling::RunTimeTiling> list(1);
    for (const std::int64_t tile : tokens_of_tiles)
      if (tile < tokens) list.push_back(tiling::RunTimeTiling::tokens(tile));
    return list;
  }

  /// On a CPU, inputs are in host memory anyway. Offloaded inputs require recomputed blocks.
  std::vector<Kept> kept() const {
    const auto& own = asked.options.units;
    const bool offload = given.is_given("offload");
    std::vector<Kept> list;
    for (const Kept& way : ways_to_keep) {
      if (given.is_given("recompute") && way.recompute != own.recompute) continue;
      if (way.offload_inputs != 0 && (offload || cluster.device == "cpu")) continue;
      if (offload && own.offload_inputs > 0 && !way.recompute) continue;
      list.push_back({way.recompute, offload ? own.offload_inputs : way.offload_inputs});
    }
    return list;
  }

  /// On a CPU, the optimizer state is in host memory anyway.
  std::vector<OffloadChoice> offloads() const {
    if (given.is_given("offload")) return {asked.stack.offload};
    if (cluster.device == "cpu") return {OffloadChoice::none};
    return {OffloadChoice::none, OffloadChoice::optimizer};
  }
};

}  // namespace

FitSpace::FitSpace(const Train& asked, const train::FlagSet& flags, const plan::Cluster& cluster) : given_(flags) {
  const Open open{.asked = asked, .given = flags, .cluster = cluster};
  kept_ = open.kept();
  offloads_ = open.offloads();
  for (const ShardingChoice& sharding : open.shardings()) {
    std::optional<std::size_t> after;  // in the order of micro-batches: a step of more of them is no faster
    for (const auto& [count, sharing] : open.sharing_of_micro_batches()) {
      const bool in_pieces = pieces_of(sharding) > 0;
      Train train = asked;
      train.stack.sharding = sharding;
      train.options.sequence.ranks = static_cast<int>(sharing);
      train.options.grad_accum = in_pieces ? 1 : count;
      const std::int64_t tokens = open.sequences(sharing, train.options.grad_accum) * asked.options.seq_len / sharing;
      starts_.push_back({.train = std::move(train), .tilings = open.tilings(tokens)});
      families_.push_back({.levels = {static_cast<int>(kept_.size()), static_cast<int>(starts_.back().tilings.size()),
                                      static_cast<int>(offloads_.size())},
                           .after = std::exchange(after, families_.size())});
      if (in_pieces) break;
    }
  }
}

std::int64_t FitSpace::size() const {
  std::int64_t ways = 0;
  for (const plan::Family& family : families_)
    ways += std::accumulate(family.levels.begin(), family.levels.end(), std::int64_t{1}, std::multiplies());
  return ways;
}

Train FitSpace::train(std::size_t family, const plan::Turned& turned) const {
  const Start& start = starts_.at(family);
  Train train = start.train;
  const Kept& kept = kept_.at(static_cast<std::size_t>(turned.at(0)));
  train.options.units.recompute = kept.recompute;
  train.options.units.offload_inputs = kept.offload_inputs;
  train.stack.tiling = start.tilings.at(static_cast<std::size_t>(turned.at(1)));
  train.stack.offload = offloads_.at(static_cast<std::size_t>(turned.at(2)));
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
    list.push_back(train);
    list.back().stack.sharding.strategy = *strategy;
  }
  if (given_.is_given("sharding-of") || own == "replicated") return list;
  list.push_back(train);
  from_text("sharding-of", "embed_tokens|lm_head=replicated", list.back().stack.sharding.units.emplace_back());
  return list;
}

std::string FitSpace::strategy(std::size_t family) const {
  return flags({.stack = {.sharding = starts_.at(family).train.stack.sharding}});
}

std::string FitSpace::flags(const Train& train) const { return command_line(flags_of_configuration(train)); }

ConfigurationFlags flags_of_configuration(Train train) {
  Train usual;
  train::FlagSet flags, defaults;
  bind(flags, train);
  bind(defaults, usual);
  ConfigurationFlags chosen;
  for (const std::string_view name :
       {"sharding", "sharding-of", "layout", "sequence", "grad-accum", "recompute", "offload", "tiling"}) {
    const train::Texts texts = flags.find(name)->get();
    if (name == "sharding" || texts != defaults.find(name)->get())
      for (const std::string& text : texts) chosen.emplace_back(name, text);
  }
  return chosen;
}

std::string command_line(const ConfigurationFlags& flags) {
  std::string text;
  for (const auto& [name, value] : flags)
    text += message(text.empty() ? "--" : " --", name, value == "true" ? "" : " " + shell_word(value));
  return text;
}

}  // namespace fsdp::cli
