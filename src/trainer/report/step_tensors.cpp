// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/step_tensors.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <system_error>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/nearest.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp::report {
namespace {

using Kind = StepDigest::Kind;
using checkpoint::NamedShape;

constexpr const char* groups_name = "groups.safetensors";

std::string piece_name(int piece) {
  std::array<char, 32> name;
  std::snprintf(name.data(), name.size(), "piece-%05d.safetensors", piece);
  return name.data();
}

std::string tensor_name(Kind kind, const std::string& what) { return message(name_of(kind), " of ", what); }

/// The units whose streams are wanted, and the groups.
struct Chosen {
  std::vector<bool> units, groups;
};

Chosen chosen_of(const TensorChoice& choice, const StepShapes& shapes) {
  const auto &units = shapes.names.units, &groups = shapes.names.groups;
  Chosen chosen{std::vector<bool>(units.size(), !choice.unit), std::vector<bool>(groups.size(), !choice.unit)};
  if (!choice.unit) return chosen;
  const auto unit = std::ranges::find(units, *choice.unit), group = std::ranges::find(groups, *choice.unit);
  std::vector<std::string> known = units;
  for (const std::string& name : groups)
    if (std::ranges::find(units, name) == units.end()) known.push_back(name);
  require<InputError>(unit != units.end() || group != groups.end(), "--unit ", shortened(*choice.unit),
                      " is no unit of this model; ", suggestion(*choice.unit, known));
  if (group != groups.end()) chosen.groups[static_cast<std::size_t>(group - groups.begin())] = true;
  if (unit == units.end()) return chosen;
  const auto index = static_cast<std::size_t>(unit - units.begin());
  chosen.units[index] = true;
  for (const int used : shapes.groups_of_units[index]) chosen.groups[static_cast<std::size_t>(used)] = true;
  return chosen;
}

/// Text that reads back to the same float, and no longer.
std::string text_of(float value) {
  std::array<char, 64> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : std::string("?");
}

/// The place of an element in a tensor.
std::vector<std::int64_t> place_of(std::int64_t element, std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> place(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    place[axis] = element % shape[axis];
    element /= shape[axis];
  }
  return place;
}

/// How far two values are apart; one that is no number is as far as possible from any other.
double distance(float a, float b) {
  if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)) return -1;
  const double between = std::abs(static_cast<double>(a) - static_cast<double>(b));
  return std::isnan(between) ? std::numeric_limits<double>::infinity() : between;
}

/// The tensors of one folder that a digest is of.
struct Tensors {
  std::optional<checkpoint::SafetensorsFile> file = {};
  std::vector<std::string> names = {};
};

Tensors tensors_of(const std::filesystem::path& folder, const StepDigest& place) {
  const bool stream = place.kind == Kind::forward || place.kind == Kind::backward;
  const std::filesystem::path path = folder / (stream ? piece_name(place.piece) : groups_name);
  Tensors found;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return found;
  found.file.emplace(path);
  if (stream) {
    if (const std::string name = tensor_name(place.kind, place.name); found.file->find(name) != nullptr)
      found.names.push_back(name);
    return found;
  }
  for (const auto& [parameter, group] : found.file->metadata())
    if (const std::string name = tensor_name(place.kind, parameter);
        group == place.name && found.file->find(name) != nullptr)
      found.names.push_back(name);
  return found;
}

/// Looks for a larger difference of a tensor than the one that was found before.
class Largest {
 public:
  void look_at(const checkpoint::SafetensorsFile& a, const checkpoint::SafetensorsFile& b, const std::string& name) {
    const checkpoint::TensorInfo &in_a = a.at(name), &in_b = b.at(name);
    require<InputError>(in_a.shape == in_b.shape, shortened(name), " is ", checkpoint::shape_text(in_a.shape), " in ",
                        a.path().string(), " and ", checkpoint::shape_text(in_b.shape), " in ", b.path().string());
    std::vector<float> values_a, values_b;
    for (std::int64_t begin = 0; begin < in_a.elements; begin += checkpoint::piece_elements) {
      const std::int64_t count = std::min(checkpoint::piece_elements, in_a.elements - begin);
      values_a.resize(static_cast<std::size_t>(count));
      values_b.resize(static_cast<std::size_t>(count));
      a.read_range(in_a, begin, count, values_a.data());
      b.read_range(in_b, begin, count, values_b.data());
      for (std::size_t i = 0; i < values_a.size(); ++i) {
        const double apart = distance(values_a[i], values_b[i]);
        if (apart <= apart_) continue;
        apart_ = apart;
        found_ = {.tensor = name,
                  .place = place_of(begin + static_cast<std::int64_t>(i), in_a.shape),
                  .a = values_a[i],
                  .b = values_b[i]};
      }
    }
  }
  /// Nothing if no bits differ.
  std::optional<TensorDifference> found() const { return apart_ >= 0 ? std::optional(found_) : std::nullopt; }

 private:
  double apart_ = -1;
  TensorDifference found_;
};

}  // namespace

StepTensors::StepTensors(std::filesystem::path folder, const TensorChoice& choice, const StepShapes& shapes)
    : folder_(std::move(folder)), piece_(choice.piece), pieces_(shapes.pieces) {
  require<InputError>(!choice.piece || *choice.piece < shapes.pieces, "--piece ", choice.piece.value_or(0),
                      ": a step has pieces 0 to ", shapes.pieces - 1, "; give one of these");
  const Chosen chosen = chosen_of(choice, shapes);
  const int units = static_cast<int>(shapes.names.units.size());
  std::vector<NamedShape> streams;
  const auto add = [&](Kind kind, int unit) {
    const auto index = static_cast<std::size_t>(unit);
    if (!chosen.units[index]) return;
    streams_.emplace_back(kind, unit);
    streams.push_back({.name = tensor_name(kind, shapes.names.units[index]), .shape = shapes.stream});
  };
  for (int unit = 0; unit + 1 < units; ++unit) add(Kind::forward, unit);
  for (int unit = units - 1; unit > shapes.first_backward; --unit) add(Kind::backward, unit);
  stream_plan_ = checkpoint::plan_file(std::move(streams), {}, shapes.type);

  std::vector<NamedShape> parameters;
  std::map<std::string, std::string> metadata;
  for (std::size_t group = 0; group < shapes.groups.size(); ++group) {
    if (!chosen.groups[group] || !shapes.groups[group].trainable) continue;
    for (const NamedShape& parameter : shapes.groups[group].parameters) {
      metadata[parameter.name] = shapes.names.groups[group];
      for (const Kind kind : {Kind::gradient, Kind::weights}) {
        const std::string name = tensor_name(kind, parameter.name);
        parameters_[name] = parameters.size();
        parameters.push_back({.name = name, .shape = parameter.shape});
      }
    }
  }
  group_plan_ = checkpoint::plan_file(std::move(parameters), metadata);
}

std::int64_t StepTensors::bytes() const {
  const std::int64_t pieces = streams_.empty() ? 0 : piece_ ? 1 : pieces_;
  return checked_add(group_plan_.file_bytes, checked_multiply(pieces, stream_plan_.file_bytes));
}

void StepTensors::create() {
  std::error_code error;
  require<InputError>(!std::filesystem::exists(folder_, error) || std::filesystem::is_empty(folder_, error),
                      "--tensors ", folder_.string(), ": is not empty; give a new folder");
  std::filesystem::create_directories(folder_, error);
  require<InputError>(!error, "--tensors ", folder_.string(), ": cannot be made: ", error.message());
  group_file_.emplace(checkpoint::SharedFile::create(folder_ / groups_name, group_plan_));
}

void StepTensors::join() { group_file_.emplace(checkpoint::SharedFile::join(folder_ / groups_name, group_plan_)); }

bool StepTensors::wants(Kind kind, int unit, int piece) const {
  return (!piece_ || *piece_ == piece) && std::ranges::find(streams_, std::pair(kind, unit)) != streams_.end();
}

void StepTensors::write_stream(Kind kind, int unit, int piece, std::span<const float> values) {
  auto file = piece_files_.find(piece);
  if (file == piece_files_.end())
    file = piece_files_.emplace(piece, checkpoint::SharedFile::create(folder_ / piece_name(piece), stream_plan_)).first;
  const auto stream = std::ranges::find(streams_, std::pair(kind, unit));
  require(stream != streams_.end(), "step tensors: a stream that is not wanted");
  file->second.write_range(static_cast<std::size_t>(stream - streams_.begin()), 0, values);
}

void StepTensors::write_parameter(Kind kind, const std::string& parameter, std::int64_t begin,
                                  std::span<const float> values) {
  const auto found = parameters_.find(tensor_name(kind, parameter));
  if (found != parameters_.end()) group_file_->write_range(found->second, begin, values);
}

void StepTensors::finish() {
  for (auto& [piece, file] : piece_files_) file.finish();
  if (group_file_) group_file_->finish();
}

std::optional<TensorDifference> largest_difference(const std::filesystem::path& a, const std::filesystem::path& b,
                                                   const StepDigest& place) {
  const Tensors in_a = tensors_of(a, place), in_b = tensors_of(b, place);
  if (in_a.names.empty() || in_a.names != in_b.names) return std::nullopt;
  Largest largest;
  for (const std::string& name : in_a.names) largest.look_at(*in_a.file, *in_b.file, name);
  return largest.found();
}

std::string in_words(const TensorDifference& difference) {
  return message("the largest difference is ", text_of(std::abs(difference.a - difference.b)), ", at ",
                 checkpoint::shape_text(difference.place), " of ", shortened(difference.tensor), ": ",
                 text_of(difference.a), " and ", text_of(difference.b));
}

}  // namespace fsdp::report
