// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run's record in its checkpoints, and the identity of its data, on which all of its ranks agree.
#pragma once

#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/device/compute/cpu.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/trainer/data/source.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/arguments.hpp>
#include <tessera/trainer/run/replay_request.hpp>
#include <tessera/trainer/run/resumed.hpp>
#include <tessera/trainer/run/same_bits.hpp>

namespace fsdp::train {

/// Returns one line that identifies the data, the same on all ranks. Collective; throws InputError on all ranks unless
/// all have opened the same data and model.
template <class Model, class Source>
std::string agreed_data(const comm::Ranks& ranks, const TrainOptions& options, const Model& model,
                        const Source& source) {
  const std::string data = read_together(ranks, options.launch.disk_deadline_seconds, "data", [&] {
    if constexpr (data::detail::has_identity<Source>()) return source.identity();
    return source.text();
  });
  comm::agree_on_opened(ranks, message("data = ", data, "\nwindows = ", source.training(), " and ", source.validation(),
                                       " held out\n", model.config().write()));
  return data;
}

/// Returns "fsdp2 threads:2 bf16 off", followed by "ulysses:2" if two ranks share each sequence.
template <class Comm>
std::string stack_text(const Comm& communicator, const PolicyTexts& policies, const Ulysses& sequence) {
  return message(policies.sharding, " ", policy_text(communicator), " ", policies.precision, " ", policies.tiling,
                 sequence.ranks == 1 ? "" : " " + sequence.text());
}

/// Returns the record that later runs compare with theirs and that replays use. `request`: the request of the planned
/// step; `stack`, `data`: the results of stack_text and agreed_data.
template <class Model, class Optimizer>
RunRecord run_record(const TrainOptions& options, const Model& model, const typename Model::Stack::Sharding& sharding,
                     const typename Model::Stack::Tiling& tiling, const Optimizer& optimizer,
                     const plan::Request& request, const std::string& stack, const std::string& data) {
  using Stack = typename Model::Stack;
  RunRecord record = record_of(options);
  const PolicyTexts policies = policy_texts<Stack>(sharding, tiling);
  record["stack"] = stack;
  record["ranks"] = std::to_string(request.ranks);
  record["threads"] = std::to_string(request.shape.threads);
  record["data"] = data;
  record["instruction-set"] = device::arithmetic();
  if (const int pieces = sharding::facts_of(sharding).pieces; pieces > 0) {
    record["pieces"] = std::to_string(pieces);
    record["precision"] = policies.precision;
    record["tiling"] = policies.tiling;
    const bool on_host = Stack::Device::host_memory || offloads_optimizer_of<typename Stack::Sharding>;
    record["optimizer-device"] = on_host ? "cpu" : std::string(Stack::Device::name);
    record["tiling-plans"] = tiles_text(plan::tiling_text(model, tiling, request));
    record.merge(last_bits<typename Stack::Device>(request.shape.threads));
  }
  record.merge(replay_record(options, policies));
  add_optimizer(record, optimizer.name(), values_of(optimizer));
  add_config(record, values_of(model.config()));
  return record;
}

}  // namespace fsdp::train
