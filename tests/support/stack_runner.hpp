// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs training steps of a small Llama on any of the stacks that the tests compile, and collects the results of all
/// ranks.
///
/// The stacks themselves are in tests/support/stacks/; tests that include only this header compile quickly.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/models/llama_config.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/verification/step_digest.hpp>
#include <tessera/tiling/policies.hpp>

namespace fsdp::test {

/// Tokens and targets of one sequence; negative targets are ignored. `documents`: lengths of the documents packed in
/// it; empty if it is one document.
struct Window {
  std::vector<std::int32_t> tokens, targets;
  std::vector<std::int64_t> documents = {};
};

/// Identifies a micro-batch.
struct Place {
  int step = 0;
  int rank = 0;
  int ranks = 1;
  int micro_batch = 0;
  int micro_batches = 1;
  int fixed_pieces = 0;  ///< pieces into which the strategy splits a step (Reproducible); 0 for one per place

  int piece() const { return sharding::piece_of(micro_batch, rank, ranks); }
  int pieces() const { return fixed_pieces > 0 ? fixed_pieces : ranks * micro_batches; }
};

/// A bit that is flipped on one rank (bit_flips.hpp).
struct Flip {
  enum class What : std::uint8_t {
    gathered,  ///< a weight that the first block computes with, in its first micro-batch
    gradient,  ///< a gradient of the first micro-batch, before it is reduced
    main,      ///< a main weight, between steps
    model,     ///< a model weight, between steps
    state,     ///< an optimizer state, between steps
  };
  What what = What::gathered;
  int rank = 0;
  std::int64_t step = 1;  ///< the step, counted from 1, in which or before which the bit is flipped
  std::int64_t element = 0;
  int bit = 0;
};

using Batch = std::function<std::vector<Window>(const Place&)>;

/// A strategy for the tensors that a pattern selects.
struct PartOptions {
  std::string pattern, sharding;
  std::optional<buffer::AnyLayout> layout = {};  ///< replaces the strategy's layout
};

struct RunOptions {
  LlamaConfig config;
  UnitOptions units = {};
  std::string sharding = {};                     ///< the strategy's text, set by `run`; empty for the default strategy
  std::optional<buffer::AnyLayout> layout = {};  ///< replaces the layout of a strategy chosen at run time
  std::vector<PartOptions> parts = {};           ///< for some tensors of a RunTimeAny
  std::int64_t sequence_length = 0;
  std::int64_t most_sequences = 1;  ///< maximum number of sequences in a micro-batch, for which memory is planned
  bool fewer_sequences = true;      ///< whether micro-batches, also of evaluations, may have fewer
  int ranks = 1;
  int ranks_per_sequence = 1;  ///< above 1 only on stacks chosen at run time and "/bf16+fp32"
  int middle_parts = 0;        ///< see StepSize
  int micro_batches = 1;
  int steps = 10;  ///< including the steps before `resume`
  tiling::RunTimeTiling tiling = {};
  double lr = 1e-3;
  double clip = 0;
  std::uint64_t seed = 1;
  Batch batch;                         ///< must be the same function on every rank
  std::vector<Window> evaluated = {};  ///< evaluated before the first and after the last step, on rank 0's part
  std::vector<Window> logits_of = {};  ///< windows whose logits a generating module computes with the initial weights
  std::int64_t begun = 0;            ///< number of their tokens processed at once, before one at a time; 0: no such run
  std::filesystem::path model = {};  ///< folder of the initial weights; empty for initial values from the seed
  std::filesystem::path resume = {};                               ///< checkpoint from which to resume
  std::filesystem::path save_to = {};                              ///< folder for the checkpoint of the last step
  std::function<void(int rank, const comm::Record&)> before = {};  ///< called before each collective
  std::chrono::milliseconds deadline{120'000};                     ///< deadline of every collective over Threads
  optim::RunTimeOptimizer optimizer = {};
  bool nan_in_padding = false;               ///< fills the gradients' memory with NaN before the first step
  bool collects = true;                      ///< collects weights, gradients and optimizer states
  bool check_only = false;                   ///< on an asynchronous device: checks accesses without computing
  std::vector<std::int64_t> leave_out = {};  ///< the same device: events of rank 0's schedule whose waits are omitted
  bool reads_late = false;                   ///< reads results of a step after the next one is queued
  bool graphs = false;                       ///< steps are captured and launched; batches must have one shape
  bool digests = false;                      ///< computes digests of every step
  bool verifies = false;                     ///< verifies every step
  std::optional<Flip> flip = {};
  bool steps_on_own_gradients = false;  ///< only the stack "watched": gradients are not summed over ranks
};

/// Whole tensors by name.
using Values = std::map<std::string, std::vector<float>>;

/// Memory use of one rank.
struct Memory {
  device::BytesByKind planned{}, used{};
  std::int64_t planned_activations = 0, used_activations = 0;
  std::int64_t planned_offload = 0, used_offload = 0;  ///< in host memory
  std::int64_t allocations_after_first_step = 0, allocations_at_end = 0;
  std::int64_t weight_slots = 0, gradient_slots = 0;  ///< number of slots of nonzero size
  std::int64_t views_checked = 0;                     ///< number of weights and gradients found within slots
  std::int64_t copied_bytes = 0;                      ///< by all collectives of the first step
};

struct RunResults {
  std::vector<double> losses, norms;
  double first_evaluation = 0, last_evaluation = 0;  ///< mean losses of `evaluated`
  Values initial, gradients, weights;                ///< gradients: of the first step
  Values states;                                     ///< of the optimizer, as "parameter.state"
  std::vector<std::vector<float>> logits;            // [windows][S * V]
  std::vector<std::vector<float>> continued_logits;  // the same, with a KV cache after the first `begun` tokens
  std::vector<comm::Record> records;                 ///< collectives of the last step's forward and backward, on rank 0
  std::vector<comm::Record> across_records;          ///< collectives on the mesh's outer axis
  std::vector<comm::Record> inner_records;           ///< collectives on the mesh's inner axis
  std::vector<comm::Record> generating_records;      ///< collectives of all computations of logits_of
  std::vector<Memory> memory;                        ///< by rank
  std::vector<std::vector<StepDigest>> digests;      ///< by step
  std::vector<std::string> races;                    ///< descriptions of unordered accesses, on an asynchronous device
  std::int64_t captured = 0, launched = 0;           ///< number of captured graphs, and of steps that launched one
  std::vector<comm::MeshTraffic> traffic;            ///< of each step, on rank 0
  std::vector<plan::PartPlan> parts;                 ///< of rank 0's plan
  sharding::Schedule schedule;                       ///< schedule of a training pass, with slots
  std::vector<int> communicators;                    ///< sizes: world, across groups, within groups
  std::vector<std::vector<std::int64_t>>
      points;  ///< events that rank 0's queues waited for after the first step, by point
};

/// Runs a stack on float over Threads. `stack` is a value of --sharding with its numbers, followed by suffixes: "/bf16"
/// for mixed precision; "/bf16+fp32" for float weights in it (UnitOptions::precision); "/owned" for that layout; "/run-
/// time" for a strategy chosen at run time, optionally after "/layout=" and a value of --layout; "/by-placement" for a
/// strategy type defined by its placements; "/offload" for the optimizer in host memory; "/bf16-wire" for gradients
/// rounded in flight; "/queued" for an asynchronous device; "/nccl" for the same over a fake NCCL. "watched" is
/// FullyShard on a communicator that can omit sums and records the memory of its calls, and "alternating" FullyShard of
/// a Llama whose blocks alternate between attention and MLP. Only "replicated" and stacks with "/run-time" or "/by-
/// placement" have digests. Throws InputError for stacks that the tests do not compile.
RunResults run(std::string_view stack, const RunOptions& options);

/// The number K in a stack's name, such as 2 in "hybrid:2:full", which must divide the ranks; 1 if there is none.
std::int64_t ranks_per_group(std::string_view stack);

inline constexpr std::string_view strategies[] = {"fsdp2", "fsdp2:no-reshard", "zero1", "zero2", "zero3", "replicated"};

/// Strategies on a mesh of two axes, for an even number of ranks.
inline constexpr std::string_view mesh_strategies[] = {"fsdp2:2", "hybrid:2", "hybrid:2:full"};

/// A strategy's name with only characters that GoogleTest allows in test names.
inline std::string test_name(std::string_view strategy) {
  std::string name(strategy);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ':' || c == '-' || c == '/' || c == '='; }, '_');
  return name;
}

/// Distributes windows round-robin over the places of a step. A place without windows gets one with ignored targets
/// only.
inline Batch deal(std::vector<Window> windows) {
  return [windows = std::move(windows)](const Place& place) {
    const auto places = static_cast<std::size_t>(place.pieces());
    const auto mine = static_cast<std::size_t>(place.piece());
    std::vector<Window> dealt;
    for (std::size_t i = mine; i < windows.size(); i += places) dealt.push_back(windows[i]);
    if (!dealt.empty()) return dealt;
    dealt.push_back(windows.front());
    dealt.back().targets.assign(dealt.back().targets.size(), -1);
    return dealt;
  };
}

/// The maximum number of windows that `deal` assigns to one place.
inline std::int64_t most_dealt(std::size_t windows, int ranks, int micro_batches) {
  const auto places = static_cast<std::int64_t>(ranks) * micro_batches;
  return (static_cast<std::int64_t>(windows) + places - 1) / places;
}

/// Learnable text: each token depends on the previous one, with some noise.
inline std::vector<Window> some_windows(std::size_t count, std::int64_t length, std::int64_t vocabulary) {
  std::vector<Window> windows(count);
  std::uint64_t state = 12345;
  const auto next = [&](std::int64_t token) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto noise = static_cast<std::int64_t>(state >> 62);
    return (token * 5 + 3 + (noise == 0 ? 1 : 0)) % vocabulary;
  };
  std::int64_t token = 1;
  for (Window& window : windows)
    for (std::int64_t i = 0; i < length; ++i) {
      window.tokens.push_back(static_cast<std::int32_t>(token));
      token = next(token);
      window.targets.push_back(static_cast<std::int32_t>(token));
    }
  return windows;
}

/// L2 norm of the difference, relative to the L2 norm of the reference.
template <class Found, class Expected>
double relative(const Found& found, const Expected& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double distance = static_cast<double>(found[i]) - static_cast<double>(expected[i]);
    difference += distance * distance;
    norm += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(difference) / (norm > 0 ? std::sqrt(norm) : 1.0);
}

/// The largest relative difference of any tensor; infinite if names or sizes differ.
inline double largest_relative(const Values& found, const Values& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double largest = 0;
  for (const auto& [name, values] : expected) {
    const auto it = found.find(name);
    const double error = it == found.end() ? INFINITY : relative(it->second, values);
    largest = std::isnan(error) ? INFINITY : std::max(largest, error);
  }
  return largest;
}

/// The largest relative difference of two lists of numbers, one by one.
inline double largest_relative(const std::vector<double>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(found[i] - expected[i]) / std::abs(expected[i]);
    largest = std::isnan(error) ? INFINITY : std::max(largest, error);
  }
  return largest;
}

/// Names of tensors that are not bit-identical.
inline std::vector<std::string> tensors_that_differ(const Values& a, const Values& b) {
  std::vector<std::string> names;
  const auto bits_differ = [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) != std::bit_cast<std::uint32_t>(y);
  };
  for (const auto& [name, values] : a) {
    const auto it = b.find(name);
    bool differ = it == b.end() || it->second.size() != values.size();
    for (std::size_t i = 0; !differ && i < values.size(); ++i) differ = bits_differ(values[i], it->second[i]);
    if (differ) names.push_back(name);
  }
  if (a.size() != b.size()) names.push_back("(another number of tensors)");
  return names;
}

}  // namespace fsdp::test
FSDP_LIST(fsdp::test::Window)
