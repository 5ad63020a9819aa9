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

#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/paths.hpp"

namespace fsdp::report {
namespace {

using Kind = StepDigest::Kind;
using checkpoint::NamedShape;

constexpr const char* parameters_name = "parameters.safetensors";

std::string piece_name(int piece) {
  std::array<char, 32> name;
  std::snprintf(name.data(), name.size(), "piece-%05d.safetensors", piece);
  return name.data();
}

std::string tensor_name(Kind kind, const std::string& what) { return message(name_of(kind), " of ", what); }

/// Returns the shortest text that reads back to the same float.
std::string text_of(float value) {
  std::array<char, 64> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : std::string("?");
}

/// Returns the index of an element in a tensor, per dimension.
std::vector<std::int64_t> place_of(std::int64_t element, std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> place(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    place[axis] = element % shape[axis];
    element /= shape[axis];
  }
  return place;
}

/// Returns the distance of two values: infinity for NaN and another value; -1 for equal bits.
double distance(float a, float b) {
  if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)) return -1;
  const double between = std::abs(static_cast<double>(a) - static_cast<double>(b));
  return std::isnan(between) ? std::numeric_limits<double>::infinity() : between;
}

/// The tensors in one folder that a digest covers.
struct Tensors {
  std::optional<checkpoint::SafetensorsFile> file = {};
  std::vector<std::string> names = {};
};

Tensors tensors_of(const std::filesystem::path& folder, const StepDigest& place) {
  const bool stream = is_stream(place.kind);
  const std::filesystem::path path = folder / (stream ? piece_name(place.piece) : parameters_name);
  Tensors found;
  if (!path_exists(path)) return found;
  found.file.emplace(path);
  const auto add = [&](const std::string& what) {
    const std::string name = tensor_name(place.kind, what);
    if (found.file->find(name) != nullptr) found.names.push_back(name);
  };
  if (stream) add(place.name);
  for (const auto& [parameter, unit] : found.file->metadata())
    if (!stream && unit == place.name) add(parameter);
  return found;
}

/// Replaces `found` and its distance `most` by a larger difference in one tensor, if there is one.
void compare_tensor(const checkpoint::SafetensorsFile& a, const checkpoint::SafetensorsFile& b, const std::string& name,
                    double& most, TensorDifference& found) {
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
    std::int64_t element = begin;
    for (const auto& [value_a, value_b] : ranges::views::zip(values_a, values_b)) {
      if (const double apart = distance(value_a, value_b); apart > most) {
        most = apart;
        found = {.tensor = name, .place = place_of(element, in_a.shape), .a = value_a, .b = value_b};
      }
      ++element;
    }
  }
}

}  // namespace

StepTensors::StepTensors(std::filesystem::path folder, const TensorChoice& choice, const StepShapes& shapes)
    : folder_(std::move(folder)), piece_(choice.piece), pieces_(shapes.pieces) {
  require<InputError>(!choice.piece || *choice.piece < shapes.pieces, "--piece ", choice.piece.value_or(0),
                      ": a step has pieces 0 to ", shapes.pieces - 1, "; give one of these");
  std::vector<bool> streams_of(shapes.units.size(), !choice.unit), parameters_of = streams_of;  // per unit
  if (choice.unit) {
    const auto unit = std::ranges::find(shapes.units, *choice.unit);
    require<InputError>(unit != shapes.units.end(), "--unit ", shortened(*choice.unit), " is no unit of this model; ",
                        suggestion(*choice.unit, shapes.units));
    const auto index = static_cast<std::size_t>(unit - shapes.units.begin());
    streams_of[index] = parameters_of[index] = true;
    for (const int used : shapes.uses[index]) parameters_of[static_cast<std::size_t>(used)] = true;
  }
  const int units = static_cast<int>(shapes.units.size());
  std::vector<NamedShape> streams;
  const auto add = [&](Kind kind, int unit) {
    const auto index = static_cast<std::size_t>(unit);
    if (!streams_of[index]) return;
    streams_.emplace_back(kind, unit);
    streams.push_back({.name = tensor_name(kind, shapes.units[index]), .shape = shapes.stream});
  };
  for (int unit = 0; unit + 1 < units; ++unit) add(Kind::forward, unit);
  for (int unit = units - 1; unit > shapes.first_backward; --unit) add(Kind::backward, unit);
  stream_plan_ = checkpoint::plan_file(std::move(streams), {}, shapes.type);

  std::vector<NamedShape> parameters;
  std::map<std::string, std::string> metadata;
  for (const auto& [of_unit, unit, is_chosen] : ranges::views::zip(shapes.parameters, shapes.units, parameters_of)) {
    if (!is_chosen) continue;
    for (const NamedShape& parameter : of_unit) {
      metadata[parameter.name] = unit;
      for (const Kind kind : {Kind::gradient, Kind::weights}) {
        const std::string name = tensor_name(kind, parameter.name);
        parameters_[name] = parameters.size();
        parameters.push_back({.name = name, .shape = parameter.shape});
      }
    }
  }
  parameter_plan_ = checkpoint::plan_file(std::move(parameters), metadata);
}

StepTensors::~StepTensors() {
  if (kept_) return;
  std::error_code error;
  parameter_file_.reset();
  for (const auto& [piece, file] : piece_files_) std::filesystem::remove(folder_ / piece_name(piece), error);
  if (!made_file_) return;
  // This rank made the folder and may be the last one, so that all remaining files are from this replay.
  for (int piece = 0; piece < pieces_; ++piece) std::filesystem::remove(folder_ / piece_name(piece), error);
  for (const char* const name : {parameters_name, digests_name}) std::filesystem::remove(folder_ / name, error);
  if (made_folder_) std::filesystem::remove(folder_, error);
}

std::int64_t StepTensors::bytes() const {
  const std::int64_t pieces = streams_.empty() ? 0 : piece_ ? 1 : pieces_;
  return checked_add(parameter_plan_.file_bytes, checked_multiply(pieces, stream_plan_.file_bytes));
}

void StepTensors::create() {
  std::error_code error;
  made_folder_ = !std::filesystem::exists(folder_, error);
  require<InputError>(made_folder_ || std::filesystem::is_empty(folder_, error), "--tensors ", folder_.string(),
                      ": is not empty; give a new folder");
  std::filesystem::create_directories(folder_, error);
  require<InputError>(!error, "--tensors ", folder_.string(), ": cannot be made: ", error.message());
  made_file_ = true;
  parameter_file_.emplace(checkpoint::SharedFile::create(folder_ / parameters_name, parameter_plan_));
}

void StepTensors::join() {
  parameter_file_.emplace(checkpoint::SharedFile::join(folder_ / parameters_name, parameter_plan_));
}

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
  if (found != parameters_.end()) parameter_file_->write_range(found->second, begin, values);
}

void StepTensors::finish() {
  for (auto& [piece, file] : piece_files_) file.finish();
  if (parameter_file_) parameter_file_->finish();
}

std::optional<TensorDifference> largest_difference(const std::filesystem::path& a, const std::filesystem::path& b,
                                                   const StepDigest& place) {
  const Tensors in_a = tensors_of(a, place), in_b = tensors_of(b, place);
  if (in_a.names.empty() || in_a.names != in_b.names) return std::nullopt;
  double most = -1;
  TensorDifference found;
  for (const std::string& name : in_a.names) compare_tensor(*in_a.file, *in_b.file, name, most, found);
  return most >= 0 ? std::optional(found) : std::nullopt;  // empty if all bits are equal
}

std::string in_words(const TensorDifference& difference) {
  return message("the largest difference is ", text_of(std::abs(difference.a - difference.b)), ", at ",
                 checkpoint::shape_text(difference.place), " of ", shortened(difference.tensor), ": ",
                 text_of(difference.a), " and ", text_of(difference.b));
}

}  // namespace fsdp::report
