// SPDX-License-Identifier: Apache-2.0
/// @file
/// TensorBoard's event files: TFRecords of `Event` messages, appended and flushed at once.
///
/// Values that torchtitan also logs have torchtitan's tags; speeds are per rank, as in torchtitan. docs/metrics.md
/// lists all tags.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include <tessera/trainer/report/metrics.hpp>

namespace fsdp::report {

/// A number with its tag.
struct Scalar {
  std::string_view tag;
  double value = 0;
};

/// Encodes one record: length, checksum of the length, message, checksum of the message.
std::string tf_record(std::string_view message);

/// Encodes an `Event` message with the version of the file format. `seconds`: Unix time.
std::string version_event(double seconds);
std::string start_event(double seconds, std::int64_t step);  ///< readers then drop earlier data of this and later steps
/// Encodes an event with numbers.
std::string scalars_event(double seconds, std::int64_t step, std::span<const Scalar> scalars);
/// Encodes an event with a text for TensorBoard's text plugin, which shows it as Markdown.
std::string text_event(double seconds, std::int64_t step, std::string_view tag, std::string_view text);

/// Writes records to a new event file; does nothing if the path is empty.
class TensorBoard {
 public:
  TensorBoard() = default;
  /// Creates the directory if needed, and a file whose name sorts after all others in it, since readers take files in
  /// the order of their names. Throws InputError if it cannot be written.
  explicit TensorBoard(const std::filesystem::path& directory);

  /// Stores the number of ranks and writes a start event for the run's first step, so that readers drop the data of an
  /// earlier run from that step on.
  void write(const StartRecord& record);
  /// Appends an event and flushes it. Throws InputError if it cannot be written.
  /// @{
  void write(const StepRecord& record);
  void write(const ValidationRecord& record);
  void write(const SampleRecord& record);
  /// @}
  void write(const SummaryRecord&) {}  ///< writes nothing: other records contain all its values

 private:
  void append(const std::string& event);

  std::filesystem::path path_;
  std::ofstream file_;
  double ranks_ = 1;
};

}  // namespace fsdp::report
