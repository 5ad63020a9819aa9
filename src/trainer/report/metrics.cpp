// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/metrics.hpp>

#include <cmath>

#include <tessera/fsdp/core/error.hpp>

#include "files.hpp"
#include "json_text.hpp"

namespace fsdp::report {
namespace {

using Object = nlohmann::ordered_json;

template <class T>
Object json_of(const T& value) {
  return value;
}
/// JSON does not have NaN and infinities: they become "nan", "inf" and "-inf".
Object json_of(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}
Object json_of(const ConfigValues& values) {
  Object object = Object::object();
  for (const ConfigValue& each : values) std::visit([&](const auto& value) { object[each.name] = value; }, each.value);
  return object;
}
Object json_of(const std::vector<GroupRecord>& groups) {
  Object object = Object::object();
  for (const GroupRecord& group : groups) {
    Object& own = object[group.name] = Object::object();
    if (group.lr) own["lr"] = json_of(*group.lr);
    if (group.grad_norm) own["grad_norm"] = json_of(*group.grad_norm);
  }
  return object;
}
template <class T>
Object json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : Object(nullptr);
}

}  // namespace

ConfigValues StartRecord::named_constants() const {
  ConfigValues values = {{.name = "name", .value = optimizer}};
  values.insert(values.end(), constants.begin(), constants.end());
  return values;
}

template <class Record>
std::string json_line(const Record& record) {
  Object object;
  Record::visit(record, [&](const char* name, const auto& value) { object[name] = json_of(value); });
  return json_text(object);
}
template std::string json_line(const StartRecord& record);
template std::string json_line(const StepRecord& record);
template std::string json_line(const ValidationRecord& record);
template std::string json_line(const SampleRecord& record);
template std::string json_line(const SummaryRecord& record);

Metrics::Metrics(const std::filesystem::path& path) : path_(path) {
  if (path_.empty()) return;
  file_ = open_to_append("--metrics", path_);
}

void Metrics::append(const std::string& line) {
  if (path_.empty()) return;
  file_ << line << '\n' << std::flush;
  require<InputError>(file_.good(), "--metrics ", path_.string(), ": cannot be written (is the disk full?)");
}

}  // namespace fsdp::report
