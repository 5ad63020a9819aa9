// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run's record in its checkpoints, and the identity of its data, on which all of its ranks agree. With pieces
/// (Reproducible) the record has all on which the last bits of results depend.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/device/compute/cpu.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/trainer/data/source.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/arguments.hpp>
#include <tessera/trainer/run/replay_request.hpp>
#include <tessera/trainer/run/resumed.hpp>

namespace fsdp::train {

/// Returns the part of plan::tiling_text that determines results, as records contain it: the numbers of tiles and of
/// their tokens, without kept tiles and bytes; lines are joined by "; ".
std::string tiles_text(std::string_view plans);

std::string build_text();  ///< version, compiler and optimisation flags of the library's build

/// Returns a device's name and, if there are several kinds, the kind of the calling thread's device.
template <class Device>
std::string device_text() {
  if constexpr (requires { Device::kind(); })
    return message(Device::name, ", ", Device::kind());
  else
    return std::string(Device::name);
}

/// Returns the properties, other than data, flags and tile plans, on which the last bits of a rank's results depend.
template <class Device>
RunRecord last_bits(std::int64_t threads) {
  RunRecord record{{"build", build_text()},
                   {"device", device_text<Device>()},
                   {"instruction-set", device::arithmetic()},
                   {"threads", std::to_string(threads)}};
  if constexpr (Device::host_memory) record["library"] = device::matmul_library();
  return record;
}

/// Throws InputError on all ranks, with the first difference, unless all ranks have equal values. Collective.
void agree_on_last_bits(const comm::Ranks& ranks, const RunRecord& mine);

/// Returns a line for the user if pieces make the strategy reduce gradients after each piece; else an empty text.
template <class Sharding>
std::string reduced_sooner(const Sharding& strategy);

namespace detail {

template <class Strategy>
const Strategy& strategy_in_pieces(const Reproducible<Strategy>& strategy) {
  return strategy;
}

template <class... Strategy>
std::string reduced_sooner(const std::variant<Strategy...>& held) {
  return std::visit([](const auto& strategy) { return train::reduced_sooner(strategy); }, held);
}
extern template std::string reduced_sooner(const decltype(RunTimeAny::strategy)&);

}  // namespace detail

template <class Sharding>
std::string reduced_sooner(const Sharding& strategy) {
  if constexpr (requires { strategy.strategy; }) {
    return detail::reduced_sooner(strategy.strategy);
  } else if constexpr (requires { detail::strategy_in_pieces(strategy); }) {
    const auto& inner = detail::strategy_in_pieces(strategy);
    using Inner = std::remove_cvref_t<decltype(inner)>;
    if constexpr (sharding::GivesRules<Inner>)
      if (!inner.rules().reduce_every_micro_batch)
        return message(policy_text(inner), " with pieces reduces gradients after every piece",
                       std::derived_from<Inner, Zero1> ? ", as zero2" : "");
  }
  return {};
}

/// Returns one line that identifies the data, the same on all ranks. Collective; throws InputError on all ranks unless
/// all have opened the same data and model. `config`: the text of the model's config.json.
template <class Source>
std::string agreed_data(const comm::Ranks& ranks, const TrainOptions& options, const std::string& config,
                        const Source& source) {
  const std::string data = read_together(ranks, options.launch.disk_deadline_seconds, "data", [&] {
    if constexpr (data::detail::has_identity<Source>()) return source.identity();
    return source.text();
  });
  comm::agree_on_opened(ranks, message("data = ", data, "\nwindows = ", source.training(), " and ", source.validation(),
                                       " held out\n", config));
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
  record["threads"] = std::to_string(request.shape.threads());
  record["data"] = data;
  record["instruction-set"] = device::arithmetic();
  if (const int pieces = sharding::facts_of(sharding).pieces; pieces > 0) {
    record["pieces"] = std::to_string(pieces);
    record["precision"] = policies.precision;
    record["tiling"] = policies.tiling;
    const bool on_host = Stack::Device::host_memory || offloads_optimizer_of<typename Stack::Sharding>;
    record["optimizer-device"] = on_host ? "cpu" : std::string(Stack::Device::name);
    record["tiling-plans"] = tiles_text(plan::tiling_text(model, tiling, request));
    record.merge(last_bits<typename Stack::Device>(request.shape.threads()));
  }
  record.merge(replay_record(options, policies));
  add_optimizer(record, optimizer.name(), values_of(optimizer));
  add_config(record, values_of(model.config()));
  return record;
}

}  // namespace fsdp::train
