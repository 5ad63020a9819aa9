// SPDX-License-Identifier: Apache-2.0
/// @file
/// TensorBoard's event files: TFRecords of `Event` messages, appended and flushed as they happen.
///
/// Tags are torchtitan's where they mean the same. Speeds are per rank, as there. docs/metrics.md lists them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include <fsdp/report/metrics.hpp>

namespace fsdp::report {

/// A number by its tag.
struct Scalar {
  std::string_view tag;
  double value = 0;
};

/// Bytes of one record: length, its checksum, the message, its checksum.
std::string tf_record(std::string_view message);

/// Bytes of an `Event` message. `seconds` are those of Unix time.
std::string version_event(double seconds);
std::string start_event(double seconds, std::int64_t step);  ///< readers drop this step and later ones read before
/// An event of numbers.
std::string scalars_event(double seconds, std::int64_t step, std::span<const Scalar> scalars);
/// A text of the plugin "text", which shows it as Markdown.
std::string text_event(double seconds, std::int64_t step, std::string_view tag, std::string_view text);

/// Writes to a new file in a directory, or nowhere where the path is empty.
class TensorBoard {
 public:
  TensorBoard() = default;
  /// Makes the directory if there is none. Readers take files in the order of their names: this one is the last.
  /// Throws InputError where it cannot be written.
  explicit TensorBoard(const std::filesystem::path& directory);

  /// Keeps how many ranks there are, and says where a resumed run begins.
  void write(const StartRecord& record);
  /// Appends an event, at once. Throws InputError where the file takes no more.
  /// @{
  void write(const StepRecord& record);
  void write(const ValidationRecord& record);
  void write(const SampleRecord& record);
  /// @}
  void write(const SummaryRecord&) {}  ///< says nothing that is not in the others

 private:
  void append(const std::string& event);

  std::filesystem::path path_;
  std::ofstream file_;
  double ranks_ = 1;
};

}  // namespace fsdp::report
