// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs training steps of a small Llama on any of the stacks that the tests compile, and collects what every rank saw.
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
#include <tessera/fsdp/buffer/any_layout.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/execution/step_digest.hpp>
#include <tessera/fsdp/models/llama_config.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/rules.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/tiling/policies.hpp>

namespace fsdp::test {

/// Tokens and targets of one sequence; a negative target is ignored. `documents`: lengths of the documents that are
/// packed in it; empty: it is one.
struct Window {
  std::vector<std::int32_t> tokens, targets;
  std::vector<std::int64_t> documents = {};
};

/// Whose micro-batch is asked for.
struct Place {
  int step = 0;
  int rank = 0;
  int ranks = 1;
  int micro_batch = 0;
  int micro_batches = 1;
  int fixed_pieces = 0;  ///< that the strategy cuts a step into (Reproducible); 0: one for each place

  int piece() const { return sharding::piece_of(micro_batch, rank, ranks); }
  int pieces() const { return fixed_pieces > 0 ? fixed_pieces : ranks * micro_batches; }
};

/// A bit that is flipped on one rank (bit_flips.hpp).
struct Flip {
  enum class What : std::uint8_t {
    gathered,  ///< a weight that the first block computes with, in its first micro-batch
    gradient,  ///< a gradient of the first micro-batch, before it is reduced
    main,      ///< what rests between steps: main weights,
    model,     ///< model weights,
    state,     ///< a state of the optimizer
  };
  What what = What::gathered;
  int rank = 0;
  std::int64_t step = 1;  ///< in it, or before it; the first is 1
  std::int64_t element = 0;
  int bit = 0;
};

using Batch = std::function<std::vector<Window>(const Place&)>;

struct RunOptions {
  LlamaConfig config;
  UnitOptions units = {};
  std::string sharding = {};                     ///< the strategy's text, which `run` sets; empty: its default value
  std::optional<buffer::AnyLayout> layout = {};  ///< replaces the own layout of a strategy that is chosen at run time
  std::int64_t sequence_length = 0;
  std::int64_t most_sequences = 1;  ///< in one micro-batch: what is planned for
  bool fewer_sequences = true;      ///< micro-batches, and those of evaluations, may have fewer
  int ranks = 1;
  int ranks_per_sequence = 1;  ///< above 1 only on stacks that are chosen at run time
  int middle_parts = 0;        ///< see RunShape
  int micro_batches = 1;
  int steps = 10;  ///< those of a resumed run included
  tiling::RunTimeTiling tiling = {};
  double lr = 1e-3;
  double clip = 0;
  std::uint64_t seed = 1;
  Batch batch;  ///< must be the same function on every rank
  std::vector<Window> evaluated =
      {};  ///< given to `evaluate` before the first and after the last step, on rank 0's part
  std::vector<Window> logits_of = {};  ///< computed by a module that only generates, with the first weights
  std::int64_t begun = 0;              ///< tokens of them that are read first, before one at a time; 0: no such run
  std::filesystem::path model = {};    ///< starting weights; otherwise initial values from the seed
  std::filesystem::path resume = {};   ///< a checkpoint to go on from
  std::filesystem::path save_to = {};  ///< where the last step's checkpoint goes
  std::function<void(int rank, const comm::Record&)> before = {};  ///< called before each collective
  std::chrono::milliseconds deadline{120'000};                     ///< of every collective over Threads
  optim::RunTimeOptimizer optimizer = {};
  bool nan_in_padding = false;               ///< gradients' memory is NaN before the first step writes to it
  bool collects = true;                      ///< weights, gradients and moments
  bool check_only = false;                   ///< on an asynchronous device accesses are checked, and nothing runs
  std::vector<std::int64_t> leave_out = {};  ///< events of rank 0's schedule there that nobody waits for
  bool reads_late = false;                   ///< results of a step, once the next one was queued
  bool graphs = false;                       ///< steps are captured and launched; batches must have one shape
  bool digests = false;                      ///< of every step
  bool verifies = false;                     ///< every step
  std::optional<Flip> flip = {};
  bool steps_on_own_gradients = false;  ///< only the stack "watched": gradients are not summed over ranks
};

/// Whole tensors by name.
using Values = std::map<std::string, std::vector<float>>;

/// What one rank's memory was.
struct Memory {
  device::BytesByKind planned{}, used{};
  std::int64_t planned_activations = 0, used_activations = 0;
  std::int64_t planned_offload = 0, used_offload = 0;  ///< in host memory
  std::int64_t allocations_after_first_step = 0, allocations_at_end = 0;
  std::int64_t weight_slots = 0, gradient_slots = 0;  ///< that hold something
  std::int64_t views_checked = 0;                     ///< weights and gradients seen inside the slots
  std::int64_t copied_bytes = 0;                      ///< by all collectives of the first step
};

struct RunResults {
  std::vector<double> losses, norms;
  double first_evaluation = 0, last_evaluation = 0;  ///< mean loss of `evaluated`
  Values initial, gradients, weights;                ///< gradients: of the first step
  Values states;                                     ///< of the optimizer, as "parameter.state"
  std::vector<std::vector<float>> logits;            // [windows][S * V]
  std::vector<std::vector<float>> continued_logits;  // the same, from what was kept of the first `begun` tokens on
  std::vector<comm::Record> records;                 ///< collectives of the last step's forward and backward, on rank 0
  std::vector<comm::Record> across_records;          ///< those on the mesh's outer axis
  std::vector<comm::Record> inner_records;           ///< and on its inner one
  std::vector<comm::Record> generating_records;      ///< collectives of all of logits_of
  std::vector<Memory> memory;                        ///< by rank
  std::vector<std::vector<StepDigest>> digests;      ///< by step
  std::vector<std::string> races;                    ///< accesses in no order, in words, on an asynchronous device
  std::int64_t captured = 0, launched = 0;           ///< graphs, and steps that were one
  std::vector<comm::MeshTraffic> traffic;            ///< of each step, on rank 0
  sharding::Schedule schedule;                       ///< of a training pass, with its slots
  std::vector<int> communicators;                    ///< their sizes: of all ranks, across groups, in them
  std::vector<std::vector<std::int64_t>>
      points;  ///< events that rank 0's queues waited for after the first step, by point
};

/// What --sharding takes, with its numbers, in float over Threads; with "/bf16" behind it in mixed precision, with
/// "/owned" in that layout, with "/run-time" as a strategy that is chosen at run time, before which "/layout=rows" is
/// what --layout takes, with "/by-placement" as one of a type with the strategy's placements; "/offload" with the
/// optimizer in host memory, "/bf16-wire" with gradients rounded on their way, with "/queued" on an asynchronous
/// device, with "/nccl" there over a double of NCCL; and "watched": FullyShard on a communicator that can leave sums
/// out and remembers what memory it was given. Throws InputError for what the tests do not compile.
RunResults run(std::string_view stack, const RunOptions& options);

/// K in a stack's name, such as 2 in "hybrid:2:full", which must divide the ranks; 1 where there is none.
std::int64_t ranks_per_group(std::string_view stack);

inline constexpr std::string_view strategies[] = {"fsdp2", "fsdp2:no-reshard", "zero1", "zero2", "zero3", "replicated"};

/// Strategies on a mesh of two axes, for an even number of ranks.
inline constexpr std::string_view mesh_strategies[] = {"fsdp2:2", "hybrid:2", "hybrid:2:full"};

/// A strategy's name as GoogleTest allows it in the name of a test.
inline std::string test_name(std::string_view strategy) {
  std::string name(strategy);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ':' || c == '-' || c == '/' || c == '='; }, '_');
  return name;
}

/// Deals windows to the places of a step in turn; a place without any gets one whose targets are all ignored.
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

/// Windows that `deal` gives to one place at most.
inline std::int64_t most_dealt(std::size_t windows, int ranks, int micro_batches) {
  const auto places = static_cast<std::int64_t>(ranks) * micro_batches;
  return (static_cast<std::int64_t>(windows) + places - 1) / places;
}

/// Text that can be learnt: each token depends on the one before, with some noise.
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

/// L2 norm of the difference over the L2 norm of the reference.
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

/// The largest `relative` of any tensor; infinite where names or sizes differ.
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

/// Names of tensors whose bits differ anywhere.
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
