// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/report.hpp>

#include "record_json.hpp"

namespace fsdp::report {
namespace {

using plan::Estimate;
using plan::Link;

constexpr std::array links = {Link::node, Link::network, Link::host};

template <class T>
T of(const std::array<T, plan::link_count>& numbers, Link link) {
  return numbers[static_cast<std::size_t>(link)];
}

std::string percent_text(double part) { return decimal_text(100 * part, 1) + " %"; }
std::string tera_text(double rate) { return estimate_digits(rate * 1e-12) + " TFLOP/s"; }

/// Returns "63.83 GiB per rank; 79.65 GiB are available (15.82 GiB left)".
std::string need_text(const plan::Need& need, const char* per) {
  const std::string state =
      need.left() >= 0 ? message(bytes_text(need.left()), " left") : message(bytes_text(-need.left()), " short");
  return message(bytes_text(need.needed), per, "; ", bytes_text(need.available), " are available (", state, ")");
}

/// Returns a line of the table.
std::string table_row(std::string_view name, const std::string& value) {
  return message("  ", name, std::string(12 - name.size(), ' '), value, "\n");
}

std::string links_text(const Estimate& estimate) {
  constexpr std::array whose = {"into a rank from its node", "into a node", "between a rank and its host"};
  std::string text;
  for (const Link link : links)
    if (of(estimate.bytes, link) > 0)
      text += table_row(name_of(link),
                        message(bytes_text(static_cast<std::int64_t>(of(estimate.bytes, link))), ' ', of(whose, link),
                                ", ", planned_seconds_text(of(estimate.busy, link)), " at its full bandwidth"));
  return text;
}

nlohmann::ordered_json links_json(const Estimate& estimate) {
  auto object = nlohmann::ordered_json::object();
  for (const Link link : links)
    object[std::string(name_of(link))] =
        json_object({{"bytes", std::llround(of(estimate.bytes, link))}, {"busy_seconds", of(estimate.busy, link)}});
  return object;
}

nlohmann::ordered_json need_json(const plan::Need& need) {
  return json_object({{"needed", need.needed}, {"available", need.available}, {"left", need.left()}});
}

}  // namespace

std::string estimate_line(const Estimate& estimate) {
  const double exposed = estimate.exposed_collectives + estimate.exposed_copies;
  return message(planned_seconds_text(estimate.seconds), ", ", estimate_digits(estimate.tokens_per_second()),
                 " tokens a second, MFU ", percent_text(estimate.mfu()), ", ", percent_text(exposed / estimate.seconds),
                 " exposed, ", need_text(estimate.device, " per rank"));
}

std::string estimate_text(const Estimate& estimate, const EstimateTitle& title) {
  const plan::Cluster& cluster = estimate.cluster;
  const double exposed = estimate.exposed_collectives + estimate.exposed_copies;
  std::string text =
      message(title.stack, " on ", title.cluster, ", ", cluster.ranks, cluster.ranks == 1 ? " rank" : " ranks", " in ",
              cluster.nodes(), cluster.nodes() == 1 ? " node, " : " nodes, ", title.step, "\n");
  text += message(estimate.fits() ? "it fits" : "it does not fit", ": needs ", need_text(estimate.device, " per rank"));
  if (estimate.host.needed > 0) text += message("; and ", need_text(estimate.host, " of host memory per node"));
  text += "\n";
  text += table_row("step", planned_seconds_text(estimate.seconds));
  text += table_row("tokens", message(estimate_digits(estimate.tokens_per_second()), " a second, ",
                                      count_text(std::llround(estimate.tokens)), " a step"));
  text += table_row("MFU", message(percent_text(estimate.mfu()), " of ", tera_text(estimate.peak), " a rank"));
  if (!title.documents.empty()) text += table_row("documents", title.documents);
  if (estimate.plan.middle_parts > 1)
    text += table_row("attention", message("in ", estimate.plan.middle_parts, " parts"));
  text += table_row("computes", planned_seconds_text(estimate.compute_seconds));
  text += table_row("exposed", message(planned_seconds_text(estimate.exposed_collectives), " of collectives, ",
                                       planned_seconds_text(estimate.exposed_copies), " of copies to the host, ",
                                       percent_text(exposed / estimate.seconds), " of the step"));
  text += links_text(estimate);
  for (const plan::PartPlan& part : estimate.plan.parts)
    text +=
        table_row("part", message(part.name, ": ", part.tensors, part.tensors == 1 ? " tensor" : " tensors", " in ",
                                  name_of(part.dtype), "; at rest ", bytes_text(part.weight_bytes), " of weights, ",
                                  bytes_text(part.gradient_bytes), " of gradients, ", bytes_text(part.optimizer_bytes),
                                  " of optimizer state; a step gathers ", bytes_text(part.gathered_bytes),
                                  " and reduces ", bytes_text(part.reduced_bytes)));
  text +=
      memory_table(estimate.plan.bytes, estimate.plan.same_on_all_ranks
                                            ? "bytes of each rank"
                                            : message("bytes of rank ", estimate.plan.rank, ", which takes the most"));
  const std::int64_t runtime = estimate.device.needed - estimate.plan.peak_bytes() -
                               (cluster.device == "cpu" ? estimate.plan.offloaded_bytes : 0);
  text += message("in addition, for the runtime: ", runtime, " bytes (", bytes_text(runtime), ")\n");
  if (estimate.plan.offloaded_bytes > 0)
    text += message("beside it, in host memory: ", estimate.plan.offloaded_bytes, " bytes (",
                    bytes_text(estimate.plan.offloaded_bytes), ")\n");
  return text;
}

std::string estimate_json(const Estimate& estimate, const EstimateTitle& title) {
  auto memory = nlohmann::ordered_json::object();
  for (const auto& [name, bytes] : ranges::views::zip(device::memory_kind_names, estimate.plan.bytes))
    memory[std::string(name)] = bytes;
  auto object = json_object({{"stack", title.stack},
                             {"cluster", title.cluster},
                             {"ranks", estimate.cluster.ranks},
                             {"nodes", estimate.cluster.nodes()},
                             {"fits", estimate.fits()},
                             {"device_bytes", need_json(estimate.device)},
                             {"host_bytes", need_json(estimate.host)},
                             {"memory", memory},
                             {"peak_bytes", estimate.plan.peak_bytes()},
                             {"offloaded_bytes", estimate.plan.offloaded_bytes},
                             {"step_seconds", estimate.seconds},
                             {"attention_parts", estimate.plan.middle_parts},
                             {"tokens", std::llround(estimate.tokens)},
                             {"tokens_per_second", estimate.tokens_per_second()},
                             {"document_length", title.document_length},
                             {"model_flops", estimate.model_flops},
                             {"mfu", estimate.mfu()},
                             {"peak_flops", estimate.peak},
                             {"compute_seconds", estimate.compute_seconds},
                             {"exposed_collective_seconds", estimate.exposed_collectives},
                             {"exposed_copy_seconds", estimate.exposed_copies},
                             {"links", links_json(estimate)},
                             {"traffic", json_of(estimate.traffic)}});
  if (!estimate.plan.parts.empty()) object["parts"] = json_of(estimate.plan.parts);
  return json_text(object);
}

std::vector<TraceEvent> trace_events(const Estimate& estimate) {
  constexpr std::array categories = {"compute", "comm", "comm"};  // by WorkKind; the same as in report::trace_event
  std::vector<TraceEvent> events;
  for (const plan::TimedWork& each : estimate.works) {
    const double seconds = each.span.end - each.span.begin;
    if (seconds > 0)
      events.push_back({.name = each.work.name,
                        .category = categories[static_cast<std::size_t>(each.work.kind)],
                        .begin_microseconds = each.span.begin * 1e6,
                        .duration_microseconds = seconds * 1e6,
                        .rank = 0,
                        .lane = each.work.work.track});
  }
  for (const plan::HeldActivations& each : estimate.activations)
    events.push_back(memory_event(estimate.plan.bytes, each.bytes, 0, each.seconds));
  return events;
}

std::vector<std::string> trace_lanes() {
  std::vector<std::string> lanes;
  for (std::size_t track = 0; track < plan::track_count; ++track)
    lanes.emplace_back(name_of(static_cast<plan::Track>(track)));
  return lanes;
}

}  // namespace fsdp::report
