// SPDX-License-Identifier: Apache-2.0
/// @file
/// Results of the ranks of a run, and whole tensors assembled from their pieces: the part of
/// tests/support/stack_run.hpp that does not depend on a stack and is compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/module/module_plan.hpp>

#include <support/stack_runner.hpp>

namespace fsdp::test {

/// Results by rank. Each has one entry for its rank's memory.
class RankResults {
 public:
  explicit RankResults(int ranks);
  RankResults(const RankResults&) = delete;
  RankResults& operator=(const RankResults&) = delete;
  ~RankResults();

  RunResults& of(int rank);
  /// The results of rank 0 with the memory of all ranks. Losses, norms and logits must be bit-identical on all ranks.
  RunResults merged();

 private:
  std::vector<RunResults> by_rank_;
};

/// Add the results of a step, or copy records.
/// @{
void add_traffic(RunResults& results, const comm::MeshTraffic& now, const comm::MeshTraffic& before);
void add_digests(RunResults& results, std::vector<StepDigest> digests);
void copy_records(std::vector<comm::Record>& records, const comm::Monitor& monitor);
/// The same without the collective in which ranks compare their schedules.
void copy_generating_records(std::vector<comm::Record>& records, const comm::Monitor& monitor);
/// @}

/// Adds a state of a parameter under the name "parameter.state".
void add_state(Values& states, const std::string& parameter, std::string_view state, const Values& found);
/// Adds a list of `numbers` floats and returns it, to be written.
float* add_list(std::vector<std::vector<float>>& lists, std::size_t numbers);

/// One rank's parts of tensors, from which whole tensors are assembled.
class HeldTensors {
 public:
  /// Omits the module's parameters without has(parameter, trainable): their elements stay zero. `parameters`, the list
  /// of all, must outlive this object.
  HeldTensors(const std::vector<Parameter>& parameters, const ModuleState& module,
              FunctionRef<bool(const Parameter&, bool)> has);
  HeldTensors(const HeldTensors&) = delete;
  HeldTensors& operator=(const HeldTensors&) = delete;
  ~HeldTensors();

  /// Adds `count` elements of 4 bytes, which begin at the parameter's element `begin`.
  void add(const std::string& name, std::int64_t begin, bool owned, const void* bits, std::int64_t count);
  /// Returns the whole tensors. Each element must have one owner and be the same in every replica. Collective.
  Values whole(const comm::Ranks& ranks) const;

 private:
  struct Part {
    std::size_t at = 0;  ///< offset of its first element among all parameters
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
