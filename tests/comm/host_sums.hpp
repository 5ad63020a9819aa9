// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collectives whose results depend on the order of summation, to compare bit by bit two ways of creating ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include <tessera/comm/collectives.hpp>

namespace fsdp::test {

/// One rank's results of a gather, of sums in both wire types (overwriting and accumulating), and of a reduction of
/// doubles.
struct HostSums {
  std::vector<float> gathered, summed, rounded, added, added_rounded, all_reduced;
  double number = 0;

  friend bool operator==(const HostSums&, const HostSums&) = default;
};

/// Runs the collectives with uneven counts. `shared`: buffers that peers read are in memory that they can map.
template <comm::Communicator C>
HostSums host_sums(C& c, bool shared = false) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(c.size()));
  std::generate(counts.begin(), counts.end(), [next = 100'003 - 7]() mutable { return next += 7; });
  const auto mine = counts.begin() + c.rank();
  const std::int64_t begin = std::accumulate(counts.begin(), mine, std::int64_t{0}), own = *mine;
  const std::int64_t total = std::accumulate(mine, counts.end(), begin);
  std::vector<float> heap(static_cast<std::size_t>(total));
  std::shared_ptr<std::byte> window =
      shared ? comm::shared_memory(c, total * std::int64_t{sizeof(float)}) : std::shared_ptr<std::byte>();
  float* const full = window ? reinterpret_cast<float*>(window.get()) : heap.data();
  const auto refill = [&] {
    for (std::int64_t i = 0; i < total; ++i)
      full[i] = std::sin(static_cast<float>(i % 1001) + 0.1F) * std::exp2(static_cast<float>((i + c.rank()) % 19 - 9));
  };
  const auto whole = [&] { return std::vector<float>(full, full + total); };
  HostSums result;

  refill();
  const std::vector<comm::Segment<float>> in_place{{.local = full + begin, .full = full, .counts = counts}};
  comm::all_gather(c, in_place).wait();
  result.gathered = whole();
  refill();
  comm::all_reduce<float>(c, in_place).wait();
  result.all_reduced = whole();
  for (std::vector<float>* sum : {&result.summed, &result.rounded, &result.added, &result.added_rounded}) {
    refill();
    sum->assign(static_cast<std::size_t>(own), 0.7F);
    const std::vector<comm::Segment<float>> apart{{.local = sum->data(), .full = full, .counts = counts}};
    const bool adds = sum == &result.added || sum == &result.added_rounded;
    const Write write = adds ? Write::accumulate : Write::overwrite;
    if (sum == &result.summed || sum == &result.added)
      comm::reduce_scatter<float>(c, apart, write).wait();
    else
      comm::reduce_scatter<bf16>(c, apart, write).wait();
  }
  result.number = comm::sum_over_ranks(c, 0.1 * (c.rank() + 1));
  comm::barrier(c);  // no peer reads the window any more
  return result;
}

}  // namespace fsdp::test
