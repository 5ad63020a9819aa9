// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the ranks of a run report, and whole tensors of what each of them holds: the part of
/// tests/support/stack_run.hpp that depends on no stack and is compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/parameter.hpp>

#include <support/stack_runner.hpp>

namespace fsdp::test {

/// Results by rank. Each has a place for that rank's memory.
class RankResults {
 public:
  explicit RankResults(int ranks);
  RankResults(const RankResults&) = delete;
  RankResults& operator=(const RankResults&) = delete;
  ~RankResults();

  RunResults& of(int rank);
  /// Rank 0's, with the memory of all. All ranks must report the same losses, norms and logits, to the bit.
  RunResults merged();

 private:
  std::vector<RunResults> by_rank_;
};

/// Add what happened in a step, or copy what was recorded.
/// @{
void add_traffic(RunResults& results, const comm::MeshTraffic& now, const comm::MeshTraffic& before);
void add_digests(RunResults& results, std::vector<StepDigest> digests);
void copy_records(std::vector<comm::Record>& records, const comm::Monitor& monitor);
/// The same without the exchange in which ranks compare their schedules.
void copy_generating_records(std::vector<comm::Record>& records, const comm::Monitor& monitor);
/// @}

/// Adds what was found of a state of a parameter, as "parameter.state".
void add_state(Values& states, const std::string& parameter, std::string_view state, const Values& found);
/// Adds a list of so many numbers, to be written.
float* add_list(std::vector<std::vector<float>>& lists, std::size_t numbers);

/// Parts of tensors of one rank, from which whole ones are made.
class HeldTensors {
 public:
  explicit HeldTensors(const std::vector<Parameter>& parameters);
  HeldTensors(const HeldTensors&) = delete;
  HeldTensors& operator=(const HeldTensors&) = delete;
  ~HeldTensors();

  /// Leaves a parameter's elements zero.
  void leave_out(const std::string& name) { left_out_.push_back(name); }
  /// Adds the bits of `count` elements of 4 bytes from the parameter's element `begin` on.
  void add(const std::string& name, std::int64_t begin, bool owned, const void* bits, std::int64_t count);
  /// The whole tensors. Each element must be owned once, and be the same in every replica. Collective.
  Values whole(const comm::Ranks& ranks) const;

 private:
  struct Part {
    std::size_t at = 0;  ///< of its first element among all
    bool owned = false;
    std::vector<std::int32_t> bits;
  };

  const std::vector<Parameter>& parameters_;
  std::map<std::string, std::size_t> offsets_;
  std::size_t total_ = 0;
  std::vector<std::string> left_out_;
  std::vector<Part> parts_;
};

}  // namespace fsdp::test
