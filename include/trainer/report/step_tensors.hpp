// SPDX-License-Identifier: Apache-2.0
/// @file
/// The folder of `tessera replay --tensors`: tensors of one step, and the largest difference between two such folders.
///
/// It contains digests.jsonl (digest_file.hpp); for each piece a file such as piece-00003.safetensors with the streams
/// [T, H] that units passed forward and backward; and parameters.safetensors with the reduced gradients and the updated
/// weights. Its metadata map each parameter to its unit. All ranks write to the folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/checkpoint/safetensors.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/execution/step_digest.hpp>

namespace fsdp::report {

inline constexpr const char* digests_name = "digests.jsonl";  ///< name of the digest file in the folder

/// Selects the tensors of a step to write.
struct TensorChoice {
  std::optional<std::string> unit = {};    ///< name of the only unit to write; empty: all units
  std::optional<std::int64_t> piece = {};  ///< the only piece whose streams are written; empty: all pieces
};

/// The tensors that a step has.
struct StepShapes {
  std::vector<std::string> units = {};  ///< names of the units
  /// Per unit: the parameters that the step changes and that no earlier unit uses.
  std::vector<std::vector<checkpoint::NamedShape>> parameters = {};
  std::vector<std::vector<int>> uses = {};  ///< per unit: the units whose parameters it uses
  int first_backward = 0;                   ///< see ShardedModule
  int pieces = 1;                           ///< number of pieces of a step
  std::vector<std::int64_t> stream = {};    ///< shape of a stream, [T, H]
  DType type = DType::f32;                  ///< type of a stream's elements
};

/// Writes the selected tensors. Constructed on every rank with equal arguments, without access to the disk.
class StepTensors {
 public:
  /// Throws InputError for a unit or a piece that the step does not have.
  StepTensors(std::filesystem::path folder, const TensorChoice& choice, const StepShapes& shapes);
  /// Removes the created files unless `keep` was called.
  ~StepTensors();
  StepTensors(const StepTensors&) = delete;
  StepTensors& operator=(const StepTensors&) = delete;

  std::int64_t bytes() const;  ///< total bytes of all files

  /// `create`, on one rank: creates the folder, which must be empty or absent, and the parameters' file. `join`,
  /// afterwards on the other ranks: opens that file.
  /// @{
  void create();
  void join();
  /// @}

  /// Returns whether the stream of a unit is written for this piece.
  bool wants(StepDigest::Kind kind, int unit, int piece) const;
  /// Writes a whole stream. One rank writes all streams of a piece.
  void write_stream(StepDigest::Kind kind, int unit, int piece, std::span<const float> values);
  /// Writes elements [begin, begin + values.size()) of a parameter's gradient or weights, if it is selected.
  void write_parameter(StepDigest::Kind kind, const std::string& parameter, std::int64_t begin,
                       std::span<const float> values);
  void finish();  ///< syncs and closes the files that this rank wrote
  /// Marks the folder, with its digests, as complete, so that the destructor does not remove it.
  void keep() { kept_ = true; }

 private:
  std::filesystem::path folder_;
  bool made_file_ = false, made_folder_ = false, kept_ = false;
  std::optional<std::int64_t> piece_;
  int pieces_ = 0;
  std::vector<std::pair<StepDigest::Kind, int>> streams_;  ///< kind and unit of each stream of a piece
  checkpoint::FilePlan stream_plan_, parameter_plan_;
  std::map<std::string, std::size_t> parameters_;  ///< name in the file to index in parameter_plan_
  std::map<int, checkpoint::SharedFile> piece_files_;
  std::optional<checkpoint::SharedFile> parameter_file_;
};

/// The largest difference between two versions of a tensor.
struct TensorDifference {
  std::string tensor = {};               ///< name of the tensor: a stream or a parameter
  std::vector<std::int64_t> place = {};  ///< index of the element
  float a = 0, b = 0;                    ///< values of the element
};

/// Compares the tensors that a digest covers. Returns nothing if one of the folders does not contain them. Throws
/// InputError if their shapes differ.
std::optional<TensorDifference> largest_difference(const std::filesystem::path& a, const std::filesystem::path& b,
                                                   const StepDigest& place);

/// Returns "the largest difference is 0.25, at [17, 3] of model.norm.weight: 1.5 and 1.25".
std::string in_words(const TensorDifference& difference);

}  // namespace fsdp::report
