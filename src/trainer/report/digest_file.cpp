// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/digest_file.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>
#include <utility>

#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/identity.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/json/strict_json.hpp"
#include "../../fsdp/core/strings.hpp"
#include "files.hpp"
#include "record_json.hpp"

namespace fsdp::report {
namespace {

using Object = nlohmann::ordered_json;
using Kind = StepDigest::Kind;

constexpr std::array kinds = {Kind::forward, Kind::backward, Kind::gradient, Kind::weights};

bool is_same_place(const StepDigest& a, const StepDigest& b) {
  return a.kind == b.kind && a.piece == b.piece && a.name == b.name;
}

/// Returns the step and the digest of a line.
std::optional<std::pair<std::int64_t, StepDigest>> digest_in(const Object& line) {
  const auto step = value_at<std::int64_t>(line, "step");
  const auto kind = value_at<std::string>(line, "kind"), bits = value_at<std::string>(line, "bits");
  if (!step || !kind || !bits) return std::nullopt;
  const auto named = std::ranges::find_if(kinds, [&](Kind each) { return name_of(each) == *kind; });
  const auto value = bits->size() == 16 ? parsed<std::uint64_t>(*bits, 16) : std::nullopt;
  if (named == kinds.end() || !value) return std::nullopt;
  const std::optional<std::string> name = value_at<std::string>(line, "unit");
  const std::optional<int> piece = is_stream(*named) ? value_at<int>(line, "piece") : -1;
  if (!name || !piece) return std::nullopt;
  return std::pair(*step, StepDigest{.kind = *named, .piece = *piece, .name = *name, .bits = *value});
}

ConfigValue value_of(const std::string& name, const Object& value) {
  if (value.is_boolean()) return {.name = name, .value = value.get<bool>()};
  if (value.is_number_integer()) return {.name = name, .value = value.get<std::int64_t>()};
  if (value.is_number()) return {.name = name, .value = value.get<double>()};
  return {.name = name, .value = value.is_string() ? value.get<std::string>() : json_text(value)};
}

std::optional<DigestStart> start_in(const Object& line) {
  const auto pieces = value_at<std::int64_t>(line, "pieces"), world = value_at<std::int64_t>(line, "world"),
             threads = value_at<std::int64_t>(line, "threads");
  const auto sizes = line.find("sizes");
  if (!pieces || !world || !threads || sizes == line.end() || !sizes->is_object()) return std::nullopt;
  DigestStart start{.pieces = *pieces,
                    .stack = value_at<std::string>(line, "stack").value_or(""),
                    .model_name = value_at<std::string>(line, "model").value_or(""),
                    .world = *world,
                    .threads = *threads,
                    .instruction_set = value_at<std::string>(line, "instruction_set").value_or("")};
  for (const auto& [name, value] : sizes->items()) start.sizes.push_back(value_of(name, value));
  start.seed = value_at<std::uint64_t>(line, "seed").value_or(start.seed);
  return start;
}

/// Throws InputError unless the runs of two first lines may be in one file. `where`: beginning of the error message.
void require_one_run(std::string_view where, const DigestStart& before, const DigestStart& now) {
  require<InputError>(now.pieces == before.pieces, where, "a run of ", now.pieces, " pieces a step, behind one of ",
                      before.pieces, "; give each run a file of its own");
  const std::string other = other_size(before, now);
  require<InputError>(other.empty(), where, "a run of another model than the one before it (", other,
                      "); give each run a file of its own");
}

/// Processes the lines of a file in order.
class Reading {
 public:
  explicit Reading(const std::filesystem::path& path) { file_.name = path.string(); }

  void take(std::int64_t number, const Object& line) {
    const auto where = [&] { return message(file_.name, ":", number, ": "); };
    if (line.is_object() && line.contains("event")) {
      if (*line.find("event") == "start") begin(where(), line);
      return;
    }
    const auto read = digest_in(line);
    if (!read) {
      file_.left_out.push_back(where() + "is no line of a file of digests, or a part of one");
      bad_line_ = true;
      return;
    }
    require<InputError>(begun_, where(), "a digest, and no line before it says of which run; give a file that ",
                        "--digests wrote, from its first line on");
    if (read->first != step_) close();
    damaged_ = damaged_ || bad_line_;  // a bad line between two steps may belong to either
    bad_line_ = false;
    step_ = read->first;
    digests_.push_back(read->second);
  }

  DigestFile finish() && {
    close();
    const auto leave_out = [&](std::int64_t step, std::size_t count) {
      file_.left_out.push_back(
          count < file_.places.size()
              ? message(file_.name, ": step ", step, " has ", count, " of ", file_.places.size(), " digests")
              : message(file_.name, ": step ", step, " has a line that is not whole"));
    };
    for (const auto& [step, digests] : doubtful_) {
      if (std::ranges::equal(digests, file_.places, is_same_place))
        for (const StepDigest& digest : digests) file_.steps[step].push_back(digest.bits);
      else
        leave_out(step, digests.size());
    }
    std::erase_if(file_.steps, [&](const auto& step) {
      const bool cut = step.second.size() < file_.places.size();
      if (cut) leave_out(step.first, step.second.size());
      return cut;
    });
    require<InputError>(!file_.steps.empty(), file_.name, ": holds no digests; give files that --digests wrote",
                        file_.left_out.empty() ? "" : ". ", file_.left_out.empty() ? "" : file_.left_out.front());
    return std::move(file_);
  }

 private:
  void begin(const std::string& where, const Object& line) {
    close();
    bad_line_ = false;
    std::optional<DigestStart> start = start_in(line);
    require<InputError>(start.has_value(), where, "does not say which pieces and sizes the digests are of; give files ",
                        "that --digests wrote");
    if (begun_) require_one_run(where, file_.start, *start);
    file_.start = *std::move(start);
    begun_ = true;
  }

  /// Ends the current step.
  void close() {
    const bool damaged = std::exchange(damaged_, false) || bad_line_;
    if (digests_.empty()) return;
    if (damaged) {
      file_.steps.erase(step_);
      doubtful_[step_] = std::exchange(digests_, {});
      return;
    }
    doubtful_.erase(step_);
    for (const auto& [digest, place] : ranges::views::zip(digests_, file_.places))
      require<InputError>(is_same_place(digest, place), file_.name, ": step ", step_, " has ", in_words(digest),
                          " where the steps before it have ", in_words(place), "; give each model a file of its own");
    std::vector<std::uint64_t>& bits = file_.steps[step_];
    bits.clear();
    for (StepDigest& digest : digests_) {
      bits.push_back(std::exchange(digest.bits, 0));
      if (bits.size() > file_.places.size()) file_.places.push_back(std::move(digest));
    }
    digests_.clear();
  }

  DigestFile file_;
  bool begun_ = false;
  std::int64_t step_ = -1;           ///< number of the step of digests_
  std::vector<StepDigest> digests_;  ///< digests of the step that is being read
  bool damaged_ = false;             ///< whether a line of that step may be lost
  /// Steps that may have lost a line; the other steps show whether they are complete.
  std::map<std::int64_t, std::vector<StepDigest>> doubtful_;
  bool bad_line_ = false;  ///< whether the previous line was not a valid line
};

}  // namespace

DigestStart digest_start(const StartRecord& run, std::int64_t micro_batches) {
  return {.pieces = run.pieces > 0 ? run.pieces : run.world / run.ranks_per_sequence * micro_batches,
          .stack = run.stack,
          .model_name = run.model_name,
          .sizes = run.sizes,
          .seed = run.seed,
          .world = run.world,
          .threads = run.threads,
          .instruction_set = run.instruction_set};
}

std::string other_size(const DigestStart& a, const DigestStart& b) {
  const auto text_in = [](const DigestStart& start, const std::string& name) {
    const auto found = std::ranges::find(start.sizes, name, &ConfigValue::name);
    return found == start.sizes.end() ? std::string("unknown") : shortened(text_of(*found));
  };
  for (const DigestStart* const named : {&a, &b})
    for (const ConfigValue& value : named->sizes)
      if (const std::string mine = text_in(a, value.name), theirs = text_in(b, value.name); mine != theirs)
        return message(shortened(value.name), " is ", mine, " and ", theirs);
  return {};
}

std::string json_line(const DigestStart& s) {
  return object_text({{"event", "start"},
                      {"pieces", s.pieces},
                      {"stack", s.stack},
                      {"model", s.model_name},
                      {"sizes", json_of(s.sizes)},
                      {"seed", s.seed},
                      {"world", s.world},
                      {"threads", s.threads},
                      {"instruction_set", s.instruction_set}});
}

std::string json_line(std::int64_t step, const StepDigest& digest) {
  Object object = json_object({{"step", step}});
  if (is_stream(digest.kind)) object["piece"] = digest.piece;
  object["unit"] = digest.name;
  object["kind"] = name_of(digest.kind);
  object["bits"] = digest_text(digest.bits);
  return json_text(object);
}

DigestWriter::DigestWriter(const std::filesystem::path& path) : path_(path) {
  if (path_.empty()) return;
  bool cut = false;  // whether the last line is incomplete, since the run was killed
  std::error_code error;
  if (std::filesystem::is_regular_file(path_, error)) {  // opening a pipe would wait for a writer
    std::ifstream before(path_);
    for (std::string text; std::getline(before, text);) {
      cut = before.eof();
      if (text.find("\"event\"") == std::string::npos) continue;
      const auto line = json_value_ordered(text);
      if (value_at<std::string>(line, "event") != "start") continue;
      used_ = true;
      before_ = start_in(line);
    }
  }
  file_ = open_to_append("--digests", path_);
  if (cut) append("\n");
}

void DigestWriter::require_like(const DigestStart& start) const {
  if (!used_) return;
  const std::string where = message("--digests ", path_.string(), ": ");
  require<InputError>(before_.has_value(), where, "is another file than one of digests; give a new one");
  require_one_run(where, *before_, start);
}

void DigestWriter::begin(const DigestStart& start) {
  if (path_.empty()) return;
  require_like(start);
  append(json_line(start) + "\n");
  used_ = true;
  before_ = start;
}

void DigestWriter::write(std::int64_t step, std::span<const StepDigest> digests) {
  if (path_.empty()) return;  // ranks without a file have the digests, too
  std::string lines;
  for (const StepDigest& digest : digests) lines += json_line(step, digest) + "\n";
  append(lines);
}

void DigestWriter::append(const std::string& lines) {
  file_ << lines << std::flush;
  require<InputError>(file_.good(), "--digests ", path_.string(), ": cannot be written (is the disk full?)");
}

DigestFile read_digests(const std::filesystem::path& path) {
  Reading reading(path);
  read_lines("", path,
             [&](std::int64_t number, const std::string& text) { reading.take(number, json_value_ordered(text)); });
  return std::move(reading).finish();
}

std::string in_words(const StepDigest& place) {
  const std::string piece = is_stream(place.kind) ? message("piece ", place.piece, ", ") : std::string();
  return message(piece, shortened(place.name), ", ", name_of(place.kind));
}

}  // namespace fsdp::report
