// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/host_weights.hpp>

#include <omp.h>

#include <cmath>
#include <map>
#include <numbers>

namespace fsdp::detail {

void require_same_replicas(const comm::Ranks& ranks, std::string_view call, std::span<const std::string_view> names,
                           std::span<const StoredPart> mine) {
  const auto count = static_cast<std::size_t>(ranks.size());
  std::vector<StoredPart> all(count * mine.size());
  ranks.gather_bytes(std::as_bytes(mine), std::as_writable_bytes(std::span(all)), {"hashes of weights"});
  for (std::size_t parameter = 0; parameter < names.size(); ++parameter) {
    std::map<std::uint64_t, std::size_t> holders;  // hash of elements -> the first rank that stores these elements
    for (std::size_t rank = 0; rank < count; ++rank) {
      const StoredPart& part = all[rank * mine.size() + parameter];
      const std::size_t holder = holders.emplace(part.elements, rank).first->second;
      require<InputError>(part.values == all[holder * mine.size() + parameter].values, call, ": ",
                          comm::name_of(ranks.monitor(), static_cast<std::ptrdiff_t>(rank)), " has other values of '",
                          names[parameter], "' than ",
                          comm::name_of(ranks.monitor(), static_cast<std::ptrdiff_t>(holder)),
                          ", and both hold the same elements of it; give all ranks the same values");
    }
  }
}

}  // namespace fsdp::detail

namespace fsdp::optim {
namespace {

/// For fewer values than this, one thread is faster than waking an OpenMP team.
constexpr std::int64_t worth_a_team = 4096;

}  // namespace

double normal_at(std::uint64_t key, std::int64_t index) {
  const std::uint64_t word = mixed(key ^ mixed(static_cast<std::uint64_t>(index)));
  const double u = (static_cast<double>(word >> 32) + 0.5) * 0x1p-32;
  const double v = static_cast<double>(word & 0xffffffffu) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

void initialize(Tensor<float> weights, const Parameter& parameter, std::int64_t begin, std::uint64_t seed,
                int threads) {
  using Kind = Initial::Kind;
  const Initial& initial = parameter.initial;
  float* const values = weights.data();
  const std::int64_t count = weights.numel();
  if (initial.kind != Kind::normal) {
    std::fill_n(values, count, initial.kind == Kind::ones ? 1.0f : 0.0f);
    return;
  }
  const std::uint64_t key = mixed(seed) ^ hashed(hash_seed, parameter.name);
  const double deviation = initial.deviation;
  const auto set = [=](std::int64_t i) { values[i] = static_cast<float>(deviation * normal_at(key, begin + i)); };
  const int team = threads > 0 ? threads : omp_get_max_threads();
  if (team == 1 || count < worth_a_team) {
    for (std::int64_t i = 0; i < count; ++i) set(i);
    return;
  }
#pragma omp parallel for num_threads(team) schedule(static)
  for (std::int64_t i = 0; i < count; ++i) set(i);
}

}  // namespace fsdp::optim
