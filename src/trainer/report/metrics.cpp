// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/metrics.hpp>

#include <cmath>

#include <tessera/fsdp/core/error.hpp>

#include "files.hpp"
#include "json_text.hpp"

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

}  // namespace

std::string json_line(const StartRecord& record) {
  Object optimizer = {{"name", record.optimizer}};
  optimizer.update(json_of(record.constants));
  Object line = {{"event", "start"},
                 {"stack", record.stack},
                 {"model", record.model_name},
                 {"sizes", json_of(record.sizes)},
                 {"optimizer", optimizer},
                 {"parameters", record.parameters}};
  if (record.trained < record.parameters) line["trained_parameters"] = record.trained;
  line.update(Object{{"seed", record.seed},
                     {"world", record.world},
                     {"threads", record.threads},
                     {"instruction_set", record.instruction_set},
                     {"first_step", record.first_step},
                     {"steps", record.steps},
                     {"skipped_binary", record.skipped_binary}});
  if (record.ranks_per_sequence > 1) line["ranks_per_sequence"] = record.ranks_per_sequence;
  if (record.pieces > 0) line["pieces"] = record.pieces;
  if (!record.groups.empty()) line["groups"] = json_of(record.groups);
  if (record.planned) line["planned_step_seconds"] = number(record.planned->all);
  return json_text(line);
}

std::string json_line(const StepRecord& record) {
  Object line = {{"step", record.step},
                 {"loss", number(record.loss)},
                 {"grad_norm", number(record.grad_norm)},
                 {"lr", number(record.lr)},
                 {"tokens", record.tokens},
                 {"tokens_per_second", number(record.tokens_per_second)},
                 {"step_seconds", number(record.step_seconds)},
                 {"peak_bytes", record.peak_bytes},
                 {"tflops", number(record.tflops)},
                 {"mfu", number(record.mfu)},
                 {"mfu_peak", text_or_null(record.mfu_peak)}};
  if (record.loss_scale) line["loss_scale"] = number(*record.loss_scale);
  if (record.skipped) line["skipped"] = true;
  if (record.traffic != comm::MeshTraffic{}) line["traffic"] = json_of(record.traffic);
  if (!record.groups.empty()) line["groups"] = json_of(record.groups);
  return json_text(line);
}

std::string json_line(const ValidationRecord& record) {
  return json_text({{"event", "validation"},
                    {"step", record.step},
                    {"validation_loss", number(record.validation_loss)},
                    {"tokens", record.tokens}});
}

std::string json_line(const SampleRecord& record) {
  return json_text({{"event", "sample"}, {"step", record.step}, {"prompt", record.prompt}, {"text", record.text}});
}

std::string json_line(const SummaryRecord& record) {
  Object line = {{"event", "summary"},
                 {"steps", record.steps},
                 {"loss", number(record.loss)},
                 {"validation_loss", number(record.validation_loss)},
                 {"tokens", record.tokens},
                 {"seconds", number(record.seconds)},
                 {"first_step_seconds", number(record.first_step_seconds)},
                 {"step_seconds", record.step ? number(record.step->all) : Object(nullptr)}};
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

}  // namespace fsdp::report
