// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/replay_report.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/report/digest_diff.hpp>
#include <tessera/trainer/report/report.hpp>

#include "../report/plot.hpp"

namespace fsdp::train {
namespace {

constexpr std::int64_t large = std::int64_t{1} << 30;  // bytes of tensors above which to warn

/// Returns whether a file contains metrics and not digests, as its first line about a step shows.
bool holds_metrics(const std::string& path) {
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text, nullptr, false);
    if (!line.is_object() || line.contains("event")) continue;
    return line.contains("loss");
  }
  return false;
}

LossAndNorm metrics_of(const std::string& path, std::int64_t step) {
  const report::PlottedRun run = report::read_run(path);
  const auto there = std::ranges::find(run.steps, step, &report::StepPoint::step);
  require<InputError>(there != run.steps.end(), "--against ", path, ": has no step ", step);
  return {.loss = there->loss, .norm = there->grad_norm, .apart = there->norms_apart};
}

/// Returns whether two values are equal, or both NaN.
bool is_same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
bool is_same(const LossAndNorm& a, const LossAndNorm& b) {
  const auto same_norm = [](const auto& one, const auto& other) {
    return one.first == other.first && is_same(one.second, other.second);
  };
  return is_same(a.loss, b.loss) && is_same(a.norm, b.norm) && std::ranges::equal(a.apart, b.apart, same_norm);
}

std::string norms_text(const LossAndNorm& step) {
  std::string text = to_text(step.norm);
  for (const auto& [name, norm] : step.apart) text += message(", of ", name, " ", to_text(norm));
  return text;
}

}  // namespace

ReplayReport::ReplayReport(const ReplayRequest& request) : request_(request) {
  if (!request.against) return;
  std::error_code error;
  require<InputError>(!std::filesystem::is_fifo(*request.against, error), "--against ", *request.against,
                      ": is a FIFO, and the file is read twice; give a regular file");
  if (holds_metrics(*request.against)) {
    metrics_ = metrics_of(*request.against, request.step);
    return;
  }
  theirs_ = report::read_source(*request.against);
  const auto wanted = theirs_->file.steps.find(request.step);
  require<InputError>(wanted != theirs_->file.steps.end(), "--against ", *request.against, ": has no step ",
                      request.step);
  theirs_->file.steps = {{request.step, std::move(wanted->second)}};
}

void ReplayReport::open(const report::DigestStart& start, const report::StepTensors* tensors) {
  if (request_.digests) digests_ = report::DigestWriter(*request_.digests);
  digests_.require_like(start);
  if (tensors == nullptr) return;
  beside_tensors_ = report::DigestWriter(std::filesystem::path(*request_.tensors) / report::digests_name);
  tensor_bytes_ = tensors->bytes();
  if (tensor_bytes_ > large && !request_.choice.unit && !request_.choice.piece)
    print_warning(message("--tensors ", *request_.tensors, " takes ", report::bytes_text(tensor_bytes_),
                          "; --unit and --piece choose a part"));
}

report::DigestDiff ReplayReport::compared(const ReplayedStep& step) const {
  if (metrics_) {
    const std::string where = message("step ", request_.step, ": loss and gradient norm are ");
    if (is_same(step.found, *metrics_)) return {.same = true, .lines = {where + "those of " + *request_.against}};
    return {.lines = {message("they part in ", where, to_text(metrics_->loss), " and ", norms_text(*metrics_), " in ",
                              *request_.against)}};
  }
  report::DigestSource mine{.file = {.name = "this replay", .start = step.start}};
  if (request_.tensors) mine.folder = *request_.tensors;
  for (const StepDigest& digest : step.digests) {
    mine.file.steps[request_.step].push_back(digest.bits);
    mine.file.places.push_back(digest);
    mine.file.places.back().bits = 0;
  }
  return report::diff(*theirs_, mine);
}

int ReplayReport::tell(const ReplayedStep& step) {
  for (report::DigestWriter* const file : {&digests_, &beside_tensors_}) {
    file->begin(step.start);
    file->write(request_.step, step.digests);
  }
  std::string text =
      message("step ", request_.step, " of ", request_.folder, " on ", step.start.world,
              step.start.world == 1 ? " rank" : " ranks", ", from ", step.from.empty() ? "the beginning" : step.from,
              ": loss ", to_text(step.found.loss), ", gradient norm ", norms_text(step.found),
              step.stopped ? "; it diverged, and touched no weight" : "", "\n");
  if (request_.digests) text += message("digests   ", *request_.digests, ": ", step.digests.size(), " of this step\n");
  if (request_.tensors) text += message("tensors   ", *request_.tensors, ": ", report::bytes_text(tensor_bytes_), "\n");
  report::DigestDiff found{.same = true};
  if (request_.against) found = compared(step);
  for (const std::string& line : found.lines) text += line + "\n";
  print_text(stdout, text);
  if (!found.same)
    print_sentence(
        message("replay: step ", request_.step, " differs from that of ", *request_.against, "; stdout shows where"));
  return found.same ? 0 : 1;
}

}  // namespace fsdp::train
