// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/report.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <numeric>
#include <sstream>

#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/trainer/report/console.hpp>
#include <tessera/trainer/report/matmul_peak.hpp>

#include "../../fsdp/core/json/strict_json.hpp"

namespace fsdp::report {

std::string count_text(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t place = digits.size(); place > 3; place -= 3) digits.insert(place - 3, 1, ',');
  return digits;
}

std::string decimal_text(double value, int places) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(places) << value;
  return text.str();
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return message(decimal_text(value, unit == 0 ? 0 : 2), ' ', units[unit]);
}

std::string seconds_text(double seconds) {
  return seconds > 0 && seconds < 1 ? decimal_text(seconds * 1e3, 3) + " ms" : decimal_text(seconds, 3) + " s";
}

std::string estimate_digits(double value) {
  if (value == 0 || !std::isfinite(value)) return "0";
  const auto places = [](double of) { return 2 - static_cast<int>(std::floor(std::log10(std::abs(of)))); };
  const double unit = std::pow(10, -places(value));
  const double rounded = std::round(value / unit) * unit;
  if (rounded >= 1000) return count_text(std::llround(rounded));
  return decimal_text(rounded, std::max(places(rounded), 0));
}

std::string planned_seconds_text(double seconds) {
  return seconds > 0 && seconds < 1 ? estimate_digits(seconds * 1e3) + " ms" : estimate_digits(seconds) + " s";
}

std::string start_text(const StartRecord& record, const std::string& data, std::int64_t training_windows,
                       std::int64_t held_out_windows, std::int64_t peak_bytes) {
  std::ostringstream text;
  text << "stack     " << record.stack << ", " << record.world << (record.world == 1 ? " rank x " : " ranks x ")
       << record.threads << (record.threads == 1 ? " thread" : " threads")
       << (record.instruction_set.empty() ? "" : ", ") << record.instruction_set
       << (record.library.empty() ? "" : "\nlibrary   ") << record.library << "\nmodel     " << record.model_name
       << (record.model_name.empty() ? "" : ": ") << record.parameters << " parameters"
       << (record.trained < record.parameters ? message(" (", record.trained, " trained)") : "");
  for (const ConfigValue& size : record.sizes)
    if (const auto* const number = std::get_if<std::int64_t>(&size.value); number != nullptr && *number != 0)
      text << ", " << size.name << ' ' << text_of(size);
  text << "\noptimizer " << record.optimizer;
  for (const ConfigValue& constant : record.constants) text << ", " << constant.name << ' ' << text_of(constant);
  for (const ConfigValue& group : record.groups) text << "\ngroup     " << group.name << ": " << text_of(group);
  text << '\n'
       << "data      " << data << ", " << training_windows << " windows to train on, " << held_out_windows
       << " held out\n"
       << (record.pieces > 0 ? "batch     " + rounds_text(record.pieces, record.world, record.ranks_per_sequence) + "\n"
                             : "")
       << "memory    " << bytes_text(peak_bytes) << " of tensors on each rank";
  if (record.planned) text << "\nplan      " << planned_seconds_text(record.planned->all) << " a step";
  return text.str();
}

std::string rounds_text(std::int64_t pieces, std::int64_t ranks, std::int64_t sharing) {
  const std::int64_t readers = ranks / sharing, rounds = ceil_divide(pieces, readers), full = rounds * readers;
  std::string text = message(pieces, pieces == 1 ? " piece on " : " pieces on ", readers_text(readers, sharing), ": ",
                             rounds, rounds == 1 ? " round" : " rounds");
  if (full > pieces)
    text += message(rounds == 1 ? ", which is not full" : ", of which the last is not full",
                    "; a step takes as long as one of ", full, " pieces");
  return text;
}

std::string verification_text(std::int64_t every, std::int64_t pieces, std::int64_t ranks) {
  return message("every ", every == 1 ? "step" : std::to_string(every) + " steps",
                 ", each rank computes one piece more, of another rank: ",
                 decimal_text(100 / static_cast<double>(ceil_divide(pieces, ranks) * every), 1),
                 " % of the time of all steps");
}

namespace {

/// Returns the measured and the planned time of a step, and the main cause of a large deviation.
std::string step_text(const SummaryRecord& record) {
  constexpr double explained = 0.25;  // a larger deviation is explained
  if (!record.step) return {};
  const auto parts = [](const StepTimes& times, std::string (*in_words)(double)) {
    return times.collectives ? message(" (", in_words(*times.collectives), " of it in collectives)") : "";
  };
  const StepTimes& step = *record.step;
  std::string text = message("a step took ", seconds_text(step.all), parts(step, seconds_text));
  if (record.planned) {
    const StepTimes& planned = *record.planned;
    const double ratio = step.all / planned.all;
    text += message(", ", decimal_text(100 * std::abs(ratio - 1), 1), ratio < 1 ? " % less" : " % more",
                    " than the plan's ", planned_seconds_text(planned.all), parts(planned, planned_seconds_text));
    if (std::abs(ratio - 1) > explained && step.collectives && planned.collectives) {
      const double collectives = *step.collectives - *planned.collectives;
      const double rest = step.all - planned.all - collectives;
      text += std::abs(collectives) > std::abs(rest) ? "; most of it is collectives" : "; most of it is computation";
    }
  }
  if (record.straggler)
    text += message("; rank ", record.straggler->rank, " computes ", decimal_text(record.straggler->ratio, 2),
                    " times as long as the median rank");
  return text;
}

}  // namespace

std::string summary_text(const SummaryRecord& record) {
  std::ostringstream text;
  text << "trained " << record.steps << " steps, " << record.tokens << ' ' << record.unit << " in "
       << duration_text(record.seconds);
  if (record.first_step_seconds) text << ", the first after " << duration_text(*record.first_step_seconds);
  text << "; peak " << bytes_text(record.peak_bytes) << " of tensors on each rank";
  if (const std::string step = step_text(record); !step.empty()) text << '\n' << step;
  if (record.traffic != comm::MeshTraffic{}) text << "\ncollectives of rank 0, with the bytes of whole buffers";
  comm::MeshTraffic::visit(record.traffic, [&](std::string_view axis, const comm::Traffic& counted) {
    for (const comm::Op op : comm::all_ops)
      if (const auto [calls, bytes] = counted[op]; calls > 0)
        text << "\n  " << std::left << std::setw(10) << axis << std::setw(16) << name_of(op) << std::right
             << std::setw(10) << calls << std::setw(20) << bytes << "  " << bytes_text(bytes);
  });
  return text.str();
}

std::string memory_table(const device::BytesByKind& bytes, const std::string& title) {
  std::ostringstream text;
  const auto row = [&](std::string_view name, std::int64_t value) {
    text << "  " << std::left << std::setw(12) << name << std::right << std::setw(16) << value << "  "
         << bytes_text(value) << '\n';
  };
  text << title << '\n';
  const std::string_view cache = device::memory_kind_names[static_cast<std::size_t>(device::MemoryKind::cache)];
  for (const auto& [name, value] : ranges::views::zip(device::memory_kind_names, bytes))
    if (value > 0 || name != cache) row(name, value);  // training has no KV cache
  row("peak", std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}));
  return text.str();
}

std::string schedule_text(const sharding::Schedule& schedule, const sharding::Names& names) {
  std::ostringstream text;
  for (const sharding::Task& task : schedule) {
    text << "micro-batch " << task.micro_batch << "  " << std::left << std::setw(15) << sharding::name_of(task.action)
         << ' ' << subject_of(task, names);
    if (task.slot >= 0) text << ", slot " << task.slot;
    text << '\n';
  }
  return text.str();
}

std::string residency_text(const sharding::Residency& residency) {
  if (residency.holds.empty()) return {};
  const auto held = [&](sharding::Hold hold) { return std::ranges::count(residency.holds, hold); };
  const std::string text = message("residency: groups held for the step ", held(sharding::Hold::step),
                                   ", for a micro-batch ", held(sharding::Hold::micro_batch), ", for a use ",
                                   held(sharding::Hold::use), "; slots of ", residency.slot_bytes, " bytes, budget ",
                                   residency.budget_bytes, "; a step gathers ", residency.gathered_bytes, " bytes");
  if (residency.exhaustive) return text + ", the least within the budget";
  const auto gap = static_cast<double>(residency.gathered_bytes - residency.bound_bytes);
  return message(text, ", at most ", decimal_text(100 * gap / static_cast<double>(residency.bound_bytes), 1),
                 " % above the least, which is ", residency.bound_bytes, " or more");
}

std::string mean_loss_json(double loss, std::int64_t tokens) {
  return object_text({{"loss", loss}, {"tokens", tokens}});
}

TraceEvent trace_event(const sharding::Task& task, int rank, double begin_seconds, double seconds) {
  // What waits for a reduction belongs to communication, and so do copies to host memory and back.
  const bool communicates = sharding::communicates(task.action) || sharding::moves_activations(task.action) ||
                            sharding::may_wait(task.action);
  return {.name = std::string(sharding::name_of(task.action)) + " " + std::to_string(task.index),
          .category = communicates ? "comm" : "compute",
          .begin_microseconds = begin_seconds * 1e6,
          .duration_microseconds = seconds * 1e6,
          .rank = rank,
          .lane = communicates ? 1 : 0};
}

std::string peak_name(DType dtype, std::int64_t size, int ranks, int threads, double flops_per_second) {
  std::ostringstream text;
  text << "matmul " << name_of(dtype) << ' ' << size << "^3 on " << ranks << " x " << threads << " threads, measured "
       << std::setprecision(3) << flops_per_second * 1e-12 << " TFLOP/s";
  return text.str();
}

template MatmulPeak measure_matmul_peak<device::Cpu, float>(const comm::Ranks&, int);
template MatmulPeak measure_matmul_peak<device::Cpu, bf16>(const comm::Ranks&, int);

}  // namespace fsdp::report
