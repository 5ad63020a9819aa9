// SPDX-License-Identifier: Apache-2.0
/// @file
/// The folder of `tessera replay --tensors`: tensors of one step, and the largest difference between two such folders.
///
/// It holds digests.jsonl (digest_file.hpp); for each piece a file piece-00003.safetensors with the streams that units
/// passed on and back, [T, H]; and parameters.safetensors with the reduced gradients and the stepped weights, whose
/// metadata say which unit a parameter is of. Ranks write it together.
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

inline constexpr const char* digests_name = "digests.jsonl";  ///< of the file of digests in the folder

/// Which tensors of a step are wanted.
struct TensorChoice {
  std::optional<std::string> unit = {};    ///< nothing: all
  std::optional<std::int64_t> piece = {};  ///< whose streams; nothing: those of all pieces
};

/// The tensors that a step has.
struct StepShapes {
  std::vector<std::string> units = {};  ///< names
  /// By unit: the parameters that the step changes and that no unit before it uses.
  std::vector<std::vector<checkpoint::NamedShape>> parameters = {};
  std::vector<std::vector<int>> uses = {};  ///< by unit: the units whose parameters it uses
  int first_backward = 0;                   ///< as ShardedModule's
  int pieces = 1;                           ///< of a step
  std::vector<std::int64_t> stream = {};    ///< shape of a stream, [T, H]
  DType type = DType::f32;                  ///< of its elements
};

/// Writes the tensors that were chosen. Constructed on every rank with equal arguments; touches no disk before
/// `create`.
class StepTensors {
 public:
  /// Throws InputError for a unit or a piece that the step does not have.
  StepTensors(std::filesystem::path folder, const TensorChoice& choice, const StepShapes& shapes);
  /// Removes what was made, unless `keep` was called.
  ~StepTensors();
  StepTensors(const StepTensors&) = delete;
  StepTensors& operator=(const StepTensors&) = delete;

  /// Bytes of all files.
  std::int64_t bytes() const;

  /// On one rank: makes the folder, which must be empty or absent, and the file of the parameters. Then, on the others:
  /// opens that.
  /// @{
  void create();
  void join();
  /// @}

  /// Whether the stream of a unit is written for some piece, and for this one.
  bool wants(StepDigest::Kind kind, int unit, int piece) const;
  /// Writes a whole stream. One rank writes all of a piece.
  void write_stream(StepDigest::Kind kind, int unit, int piece, std::span<const float> values);
  /// Writes elements [begin, begin + values.size()) of a parameter's gradient or weights; does nothing for one that is
  /// not wanted.
  void write_parameter(StepDigest::Kind kind, const std::string& parameter, std::int64_t begin,
                       std::span<const float> values);
  /// Syncs and closes what this rank wrote.
  void finish();
  /// Marks the folder as complete, with its digests: it stays.
  void keep() { kept_ = true; }

 private:
  std::filesystem::path folder_;
  bool made_file_ = false, made_folder_ = false, kept_ = false;
  std::optional<std::int64_t> piece_;
  int pieces_ = 0;
  std::vector<std::pair<StepDigest::Kind, int>> streams_;  ///< of each piece: kind and unit
  checkpoint::FilePlan stream_plan_, parameter_plan_;
  std::map<std::string, std::size_t> parameters_;  ///< by name in the file: index of the tensor in parameter_plan_
  std::map<int, checkpoint::SharedFile> piece_files_;
  std::optional<checkpoint::SharedFile> parameter_file_;
};

/// The largest difference of a tensor.
struct TensorDifference {
  std::string tensor = {};               ///< a stream, or a parameter
  std::vector<std::int64_t> place = {};  ///< of the element
  float a = 0, b = 0;                    ///< its values
};

/// Compares the tensors that a digest is of. Returns nothing if one of the folders does not have them. Throws
/// InputError if their shapes differ.
std::optional<TensorDifference> largest_difference(const std::filesystem::path& a, const std::filesystem::path& b,
                                                   const StepDigest& place);

/// Returns "the largest difference is 0.25, at [17, 3] of model.norm.weight: 1.5 and 1.25".
std::string in_words(const TensorDifference& difference);

}  // namespace fsdp::report
