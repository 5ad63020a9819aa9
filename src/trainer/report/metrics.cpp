// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/metrics.hpp>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <list>
#include <system_error>

#include <range/v3/view/enumerate.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/identity.hpp>

#include "../../fsdp/checkpoint/manifest.hpp"
#include "files.hpp"
#include "record_json.hpp"

namespace fsdp::report {
namespace {

using Object = nlohmann::ordered_json;

/// JSON does not have NaN and infinities: they become "nan", "inf" and "-inf".
Object number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}
Object number(const std::optional<double>& value) { return value ? number(*value) : Object(nullptr); }
Object text_or_null(const std::string& text) { return text.empty() ? Object(nullptr) : Object(text); }

Object json_of(const std::vector<GroupRecord>& groups) {
  Object object = Object::object();
  for (const GroupRecord& group : groups) {
    Object& own = object[group.name] = Object::object();
    if (group.lr) own["lr"] = number(*group.lr);
    if (group.grad_norm) own["grad_norm"] = number(*group.grad_norm);
  }
  return object;
}

constexpr std::string_view file_prefix = "events.out.tfevents.";
constexpr double gibibyte = 1 << 30;

/// Returns the little-endian bytes of a number.
template <class Number>
std::string fixed(Number number) {
  std::string bytes(sizeof(number), '\0');
  for (const auto& [i, byte] : ranges::views::enumerate(bytes)) byte = static_cast<char>(number >> (8 * i) & 0xff);
  return bytes;
}

/// Encodes seven bits per byte, lowest first; the top bit is set if more bytes follow.
std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>((number & 0x7f) | 0x80);
  return bytes += static_cast<char>(number);
}

// Encode a field of a protobuf message: field number and wire type, then the value.
std::string key(int field, int type) { return varint(static_cast<std::uint64_t>(field) << 3 | type); }
std::string integer(int field, std::int64_t value) { return key(field, 0) + varint(static_cast<std::uint64_t>(value)); }
std::string real64(int field, double value) { return key(field, 1) + fixed(std::bit_cast<std::uint64_t>(value)); }
std::string real32(int field, float value) { return key(field, 5) + fixed(std::bit_cast<std::uint32_t>(value)); }
std::string bytes(int field, std::string_view value) { return (key(field, 2) + varint(value.size())).append(value); }

/// Returns the checksum of a TFRecord: a CRC-32C, masked because CRCs of data that contain CRCs are weak.
std::string masked_crc(std::string_view text) {
  const std::uint32_t crc = checkpoint::crc32c(std::as_bytes(std::span(text)));
  return fixed(std::rotr(crc, 15) + 0xa282ead8u);
}

/// Indents a text, so that Markdown shows it unchanged.
std::string sample_markdown(const SampleRecord& record) {
  std::string text = "    ";
  for (const char c : record.whole()) text.append(1, c).append(c == '\n' ? "    " : "");
  return text;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

/// Returns the seconds in the name of the newest event file; 0 if there is none.
std::int64_t newest_in(const std::filesystem::path& directory, std::error_code& error) {
  std::int64_t newest = 0;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    std::int64_t seconds = 0;
    if (name.starts_with(file_prefix)) {
      std::from_chars(name.data() + file_prefix.size(), name.data() + name.size(), seconds);
      newest = std::max(newest, seconds);
    }
  }
  return newest;
}

}  // namespace

std::string json_line(const StartRecord& record) {
  Object optimizer = json_object({{"name", record.optimizer}});
  optimizer.update(json_of(record.constants));
  Object line = json_object({{"event", "start"},
                             {"stack", record.stack},
                             {"model", record.model_name},
                             {"sizes", json_of(record.sizes)},
                             {"optimizer", optimizer},
                             {"parameters", record.parameters}});
  if (record.trained < record.parameters) line["trained_parameters"] = record.trained;
  line.update(json_object({{"seed", record.seed},
                           {"world", record.world},
                           {"threads", record.threads},
                           {"instruction_set", record.instruction_set},
                           {"first_step", record.first_step},
                           {"steps", record.steps},
                           {"skipped_binary", record.skipped_binary}}));
  if (record.ranks_per_sequence > 1) line["ranks_per_sequence"] = record.ranks_per_sequence;
  if (record.pieces > 0) line["pieces"] = record.pieces;
  if (!record.library.empty()) line["library"] = record.library;
  if (!record.groups.empty()) line["groups"] = json_of(record.groups);
  if (record.planned) line["planned_step_seconds"] = number(record.planned->all);
  if (!record.parts.empty()) line["parts"] = json_of(record.parts);
  return json_text(line);
}

std::string json_line(const StepRecord& record) {
  Object line = json_object({{"step", record.step},
                             {"loss", number(record.loss)},
                             {"grad_norm", number(record.grad_norm)},
                             {"lr", number(record.lr)},
                             {"tokens", record.tokens},
                             {"tokens_per_second", number(record.tokens_per_second)},
                             {"step_seconds", number(record.step_seconds)},
                             {"peak_bytes", record.peak_bytes},
                             {"tflops", number(record.tflops)},
                             {"mfu", number(record.mfu)},
                             {"mfu_peak", text_or_null(record.mfu_peak)}});
  if (record.loss_scale) line["loss_scale"] = number(*record.loss_scale);
  if (record.skipped) line["skipped"] = true;
  if (record.traffic != comm::MeshTraffic{}) line["traffic"] = json_of(record.traffic);
  if (!record.groups.empty()) line["groups"] = json_of(record.groups);
  return json_text(line);
}

std::string json_line(const ValidationRecord& record) {
  return object_text({{"event", "validation"},
                      {"step", record.step},
                      {"validation_loss", number(record.validation_loss)},
                      {"tokens", record.tokens}});
}

std::string json_line(const SampleRecord& record) {
  return object_text({{"event", "sample"}, {"step", record.step}, {"prompt", record.prompt}, {"text", record.text}});
}

std::string json_line(const SummaryRecord& record) {
  Object line = json_object({{"event", "summary"},
                             {"steps", record.steps},
                             {"loss", number(record.loss)},
                             {"validation_loss", number(record.validation_loss)},
                             {"tokens", record.tokens},
                             {"seconds", number(record.seconds)},
                             {"first_step_seconds", number(record.first_step_seconds)},
                             {"step_seconds", record.step ? number(record.step->all) : Object(nullptr)}});
  if (record.step && record.step->collectives) line["collective_seconds"] = number(*record.step->collectives);
  if (record.planned) line["planned_step_seconds"] = number(record.planned->all);
  if (record.planned) line["planned_collective_seconds"] = number(record.planned->collectives);
  if (record.straggler) line["straggler"] = record.straggler->rank;
  line["peak_bytes"] = record.peak_bytes;
  line["checkpoint"] = text_or_null(record.checkpoint);
  if (record.traffic != comm::MeshTraffic{}) line["traffic"] = json_of(record.traffic);
  return json_text(line);
}

Metrics::Metrics(const std::filesystem::path& path) : path_(path) {
  if (!path_.empty()) file_ = open_to_append("--metrics", path_);
}

void Metrics::append(const std::string& line) {
  file_ << line << '\n' << std::flush;
  require<InputError>(file_.good(), "--metrics ", path_.string(), ": cannot be written (is the disk full?)");
}

std::string tf_record(std::string_view message) {
  const std::string length = fixed(static_cast<std::uint64_t>(message.size()));
  return (length + masked_crc(length)).append(message) + masked_crc(message);
}

// Field numbers: see tensorflow/core/util/event.proto and framework/summary.proto.
std::string version_event(double seconds) { return real64(1, seconds) + bytes(3, "brain.Event:2"); }

std::string start_event(double seconds, std::int64_t step) {
  return real64(1, seconds) + integer(2, step) + bytes(7, integer(1, 1));
}

std::string scalars_event(double seconds, std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars)
    summary += bytes(1, bytes(1, scalar.tag) + real32(2, static_cast<float>(scalar.value)));
  return real64(1, seconds) + integer(2, step) + bytes(5, summary);
}

std::string text_event(double seconds, std::int64_t step, std::string_view tag, std::string_view text) {
  constexpr std::int64_t strings = 7;                       // DT_STRING
  const std::string metadata = bytes(1, bytes(1, "text"));  // plugin_data: plugin_name
  const std::string shape = bytes(2, integer(1, 1));        // one dimension, of size 1
  const std::string tensor = integer(1, strings) + bytes(2, shape) + bytes(8, text);
  const std::string value = bytes(1, tag) + bytes(8, tensor) + bytes(9, metadata);
  return real64(1, seconds) + integer(2, step) + bytes(5, bytes(1, value));
}

TensorBoard::TensorBoard(const std::filesystem::path& directory) {
  if (directory.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const std::int64_t seconds = error ? 0 : std::max(static_cast<std::int64_t>(now()), newest_in(directory, error) + 1);
  require<InputError>(!error, "--tensorboard ", directory.string(), ": cannot be written: ", error.message());
  path_ = directory / message(file_prefix, seconds, ".", machine_name(), ".", ::getpid());
  file_ = open_to_append("--tensorboard", path_, std::ios::binary);
  append(version_event(now()));
}

void TensorBoard::write(const StartRecord& record) {
  ranks_ = static_cast<double>(record.world);
  append(start_event(now(), record.first_step));
}

void TensorBoard::write(const StepRecord& record) {
  if (path_.empty()) return;
  std::vector<Scalar> scalars = {{"loss_metrics/global_avg_loss", record.loss},
                                 {"grad_norm", record.grad_norm},
                                 {"lr", record.lr},
                                 {"n_tokens_seen", static_cast<double>(record.tokens)},
                                 {"throughput(tps)", record.tokens_per_second / ranks_},
                                 {"tflops", record.tflops / ranks_},
                                 {"time_metrics/end_to_end(s)", record.step_seconds},
                                 {"memory/max_active(GiB)", static_cast<double>(record.peak_bytes) / gibibyte}};
  if (record.mfu) scalars.push_back({"mfu(%)", *record.mfu * 100});
  if (record.loss_scale) scalars.push_back({"loss_scale", *record.loss_scale});
  std::list<std::string> tags;  // tags of groups, to which scalars refer
  for (const GroupRecord& group : record.groups) {
    if (group.lr) scalars.push_back({tags.emplace_back("lr/" + group.name), *group.lr});
    if (group.grad_norm) scalars.push_back({tags.emplace_back("grad_norm/" + group.name), *group.grad_norm});
  }
  append(scalars_event(now(), record.step, scalars));
}

void TensorBoard::write(const ValidationRecord& record) {
  const Scalar loss{"validation_metrics/loss", record.validation_loss};
  append(scalars_event(now(), record.step, {&loss, 1}));
}

void TensorBoard::write(const SampleRecord& record) {
  append(text_event(now(), record.step, "sample/text_summary", sample_markdown(record)));
}

void TensorBoard::append(const std::string& event) {
  if (path_.empty()) return;
  file_ << tf_record(event) << std::flush;
  require<InputError>(file_.good(), "--tensorboard ", path_.string(), ": cannot be written (is the disk full?)");
}

}  // namespace fsdp::report
