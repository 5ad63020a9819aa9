// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/cluster.hpp>

#include <cmath>
#include <string_view>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::plan {
namespace {

/// Plausible ranges by kind of value: a wrong unit, such as TFLOP/s for FLOP/s, is outside.
/// @{
constexpr Range<double> rates{.least = 1e6, .most = 1e18};       // FLOP/s
constexpr Range<double> bandwidths{.least = 1e5, .most = 1e15};  // bytes/s
constexpr Range<double> latencies{.least = 0, .most = 1};        // seconds
constexpr Range<double> shares{.least = 0.01, .most = 1};
constexpr Range<std::int64_t> memories{.least = std::int64_t{1} << 20, .most = std::int64_t{1} << 50};
constexpr Range<std::int64_t> counts{.least = 1, .most = 1 << 24};
constexpr Range<std::int64_t> reserves{.least = 0, .most = std::int64_t{1} << 50};
/// @}

template <class T>
void require_within(std::string_view name, T value, const Range<T>& range, std::string_view unit) {
  require<InputError>(range.holds(value), name, " is ", value, ", which no machine has; give ", range.text(), " ",
                      unit);
}

/// Throws InputError if an achieved rate is above the peak.
void require_reached(std::string_view name, double rate, std::string_view peak_name, double peak) {
  require<InputError>(rate <= peak, name, " is ", rate, ", above ", peak_name, ", ", peak,
                      "; a rate that is reached is not above its peak");
}

/// The same for the rate of smaller matmuls, which may be unknown (0).
void require_reached_or_zero(std::string_view name, double rate, std::string_view peak_name, double peak) {
  if (rate != 0) require_within(name, rate, rates, "FLOP/s, or 0 where it is as that of large ones");
  require_reached(name, rate, peak_name, peak);
}

}  // namespace

double Cluster::matmul(DType type, std::int64_t smallest) const {
  const bool fp32 = type == DType::f32;
  const double large = fp32 ? matmul_fp32 : matmul_bf16;
  if (smallest >= least_large) return large;
  const double known = smallest >= least_medium ? (fp32 ? matmul_fp32_medium : matmul_bf16_medium)
                                                : (fp32 ? matmul_fp32_small : matmul_bf16_small);
  return known > 0 ? known : large;
}

void Cluster::validate() const {
  require<InputError>(device == "cuda" || device == "cpu", "device is '", device, "'; give \"cuda\" or \"cpu\"");
  require_within("ranks", ranks, counts, "ranks");
  require_within("ranks_per_node", ranks_per_node, counts, "ranks");
  require<InputError>(ranks <= ranks_per_node || ranks % ranks_per_node == 0, "ranks is ", ranks,
                      ", which do not fill nodes of ", ranks_per_node,
                      " (ranks_per_node); give a multiple of it, or "
                      "fewer ranks than one node has");
  require_within("threads", threads, counts, "threads");
  require_within("memory", memory, memories, "bytes");
  require_within("host_memory", host_memory, memories, "bytes");
  require_within("runtime_bytes", runtime_bytes, reserves, "bytes");
  require_within("exchange_bytes", exchange_bytes, reserves, "bytes");
  require<InputError>(runtime_bytes + exchange_bytes < memory, "runtime_bytes is ", runtime_bytes,
                      " and exchange_bytes is ", exchange_bytes, ", and memory is ", memory,
                      "; the runtime would leave nothing");
  require_within("peak_bf16", peak_bf16, rates, "FLOP/s");
  require_within("peak_fp32", peak_fp32, rates, "FLOP/s");
  require_within("matmul_bf16", matmul_bf16, rates, "FLOP/s");
  require_within("matmul_fp32", matmul_fp32, rates, "FLOP/s");
  require_within("attention", attention, rates, "FLOP/s");
  require_within("memory_bandwidth", memory_bandwidth, bandwidths, "bytes/s");
  require_within("collective_latency", collective_latency, latencies, "seconds");
  require_within("node_latency", node_latency, latencies, "seconds");
  require_within("node_bandwidth", node_bandwidth, bandwidths, "bytes/s");
  require_within("network_latency", network_latency, latencies, "seconds");
  require_within("network_bandwidth", network_bandwidth, bandwidths, "bytes/s");
  require_within("host_bandwidth", host_bandwidth, bandwidths, "bytes/s");
  require_within("beside_collectives", beside_collectives, shares, "of the speed alone");
  require_reached("matmul_bf16", matmul_bf16, "peak_bf16", peak_bf16);
  require_reached("attention", attention, "peak_bf16", peak_bf16);
  require_reached("matmul_fp32", matmul_fp32, "peak_fp32", peak_fp32);
  require_reached_or_zero("matmul_bf16_medium", matmul_bf16_medium, "peak_bf16", peak_bf16);
  require_reached_or_zero("matmul_bf16_small", matmul_bf16_small, "peak_bf16", peak_bf16);
  require_reached_or_zero("matmul_fp32_medium", matmul_fp32_medium, "peak_fp32", peak_fp32);
  require_reached_or_zero("matmul_fp32_small", matmul_fp32_small, "peak_fp32", peak_fp32);
}

}  // namespace fsdp::plan
