// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/metrics.hpp>

#include <cerrno>
#include <cmath>
#include <cstring>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::report {
namespace {

using Object = nlohmann::ordered_json;

/// JSON has neither NaN nor infinities: they become "nan", "inf" and "-inf".
Object number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}
Object number(const std::optional<double>& value) { return value ? number(*value) : Object(nullptr); }

Object text_or_null(const std::string& text) { return text.empty() ? Object(nullptr) : Object(text); }

std::string line_of(const Object& object) { return object.dump(-1, ' ', false, Object::error_handler_t::replace); }

Object object_of(const ConfigValues& values) {
  Object object = Object::object();
  for (const ConfigValue& each : values) std::visit([&](const auto& value) { object[each.name] = value; }, each.value);
  return object;
}

Object with_name(const std::string& name, const ConfigValues& values) {
  Object object = {{"name", name}};
  object.update(object_of(values));
  return object;
}

}  // namespace

std::string json_line(const StartRecord& r) {
  Object object = {{"event", "start"},
                   {"stack", r.stack},
                   {"model", r.model_name},
                   {"sizes", object_of(r.sizes)},
                   {"optimizer", with_name(r.optimizer, r.constants)},
                   {"parameters", r.parameters},
                   {"seed", r.seed},
                   {"world", r.world},
                   {"threads", r.threads},
                   {"instruction_set", r.instruction_set},
                   {"first_step", r.first_step},
                   {"steps", r.steps},
                   {"skipped_binary", r.skipped_binary}};
  if (r.pieces > 0) object["pieces"] = r.pieces;
  return line_of(object);
}

std::string json_line(const StepRecord& r) {
  nlohmann::ordered_json object = {{"step", r.step},
                                   {"loss", number(r.loss)},
                                   {"grad_norm", number(r.grad_norm)},
                                   {"lr", number(r.lr)},
                                   {"tokens", r.tokens},
                                   {"tokens_per_second", number(r.tokens_per_second)},
                                   {"step_seconds", number(r.step_seconds)},
                                   {"peak_bytes", r.peak_bytes},
                                   {"tflops", number(r.tflops)},
                                   {"mfu", number(r.mfu)},
                                   {"mfu_peak", text_or_null(r.mfu_peak)}};
  if (r.loss_scale) object["loss_scale"] = *r.loss_scale;
  if (r.skipped) object["skipped"] = true;
  return line_of(object);
}

std::string json_line(const ValidationRecord& r) {
  return line_of({{"event", "validation"},
                  {"step", r.step},
                  {"validation_loss", number(r.validation_loss)},
                  {"tokens", r.tokens}});
}

std::string json_line(const SampleRecord& r) {
  return line_of({{"event", "sample"}, {"step", r.step}, {"prompt", r.prompt}, {"text", r.text}});
}

std::string json_line(const SummaryRecord& r) {
  return line_of({{"event", "summary"},
                  {"steps", r.steps},
                  {"loss", number(r.loss)},
                  {"validation_loss", number(r.validation_loss)},
                  {"tokens", r.tokens},
                  {"seconds", number(r.seconds)},
                  {"peak_bytes", r.peak_bytes},
                  {"checkpoint", text_or_null(r.checkpoint)}});
}

Metrics::Metrics(const std::filesystem::path& path) : path_(path) {
  if (path_.empty()) return;
  errno = 0;
  file_.open(path_, std::ios::app);
  require<InputError>(file_.is_open(), "--metrics ", path_.string(), ": cannot be written: ", std::strerror(errno));
}

void Metrics::append(const std::string& line) {
  if (path_.empty()) return;
  file_ << line << '\n' << std::flush;
  require<InputError>(file_.good(), "--metrics ", path_.string(), ": cannot be written (is the disk full?)");
}

}  // namespace fsdp::report
