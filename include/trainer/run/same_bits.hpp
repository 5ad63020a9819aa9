// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bit-identical results on any number of ranks, for a run whose steps are cut into pieces (Reproducible). In addition
/// to the strategy, this needs equal arithmetic on all ranks, which is recorded for runs that resume (resumed.hpp).
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
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>
#include <tessera/trainer/run/resumed.hpp>

namespace fsdp::train {

/// Returns the part of plan::tiling_text that determines results, as records contain it: the numbers of tiles and of
/// their tokens, without kept tiles and bytes; lines are joined by "; ".
std::string tiles_text(std::string_view plans);

/// Returns version, compiler and optimisation flags of the library's build.
std::string build_text();

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

namespace detail {

template <class Strategy>
const Strategy& strategy_in_pieces(const Reproducible<Strategy>& strategy) {
  return strategy;
}

}  // namespace detail

/// Returns a line for the user if pieces make the strategy reduce gradients after each piece instead of once per step;
/// else an empty text.
template <class Sharding>
std::string reduced_sooner(const Sharding& strategy) {
  if constexpr (requires { strategy.strategy; }) {
    return std::visit([](const auto& held) { return reduced_sooner(held); }, strategy.strategy);
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

}  // namespace fsdp::train
