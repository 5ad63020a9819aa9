// SPDX-License-Identifier: Apache-2.0
#include "work.hpp"

#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/plan/cluster.hpp>

namespace fsdp::calibrate {
namespace {

/// Returns matmuls whose smallest size is `smallest`, or a multiple of it if it is large. Each step doubles their
/// number or their size, which grows up to 8 times. They are square, or the projections of a batch of tokens.
std::vector<device::MatmulRecord> matmuls_of_class(DType dtype, std::int64_t smallest, int step) {
  const int count = 1 << (std::min(step, 3) + std::max(step - 6, 0));
  const int growth = std::clamp(step - 3, 0, 3);
  if (smallest >= plan::Cluster::least_large) return square_matmuls(dtype, smallest << growth, count);
  std::vector<device::MatmulRecord> list;
  for (int call = 0; call < count; ++call)
    for (const device::MatmulRecord& record : projection(dtype, std::int64_t{2048} << growth, smallest, smallest))
      list.push_back(record);
  return list;
}

/// Returns `make(step)` for the first step from 0 whose run takes 20 ms on the slowest rank, or `last`. Collective.
Work sized_work(const comm::Ranks& all, int last, const std::function<Work(int step)>& make) {
  constexpr double enough = 20e-3;
  for (int step = 0;; ++step) {
    Work sized = comm::together(all, "calibrate", [&] { return make(step); });
    Rounds rounds;
    sized.add_to(rounds);
    rounds.run(1, [&] { all.barrier({"calibrate"}); });
    all.reduce(rounds.samples(), comm::Reduction::max, {"calibrate"});
    if (step == last || rounds.seconds(0, 0) >= enough) return sized;
  }
}

}  // namespace

RankWork::RankWork(const comm::Ranks& all, const DeviceWork& on, int threads) {
  constexpr std::int64_t mebi = std::int64_t{1} << 20;
  for (const std::int64_t smallest : {plan::Cluster::least_large, std::int64_t{512}, std::int64_t{128}})
    for (const DType dtype : {DType::bf16, DType::f32})
      (dtype == DType::bf16 ? bf16 : fp32).push_back(sized_work(all, 9, [&](int step) {
        return on.matmuls(matmuls_of_class(dtype, smallest, step),
                          (smallest == plan::Cluster::least_large ? 64 : 16) * mebi, threads);
      }));
  attention = sized_work(all, 7, [&](int step) { return on.attention(std::int64_t{128} << step, threads); });
  operations = sized_work(all, 8, [&](int step) { return on.operations(std::int64_t{256} << step, threads); });
  copies = sized_work(all, 6, [&](int step) { return on.copies(std::int64_t{1} << (20 + step), threads); });
}

void RankWork::add_to(Rounds& rounds) {
  for (const auto& [half, single] : ranges::views::zip(bf16, fp32)) {
    half.add_to(rounds);
    single.add_to(rounds);
  }
  for (Work* const each : {&attention, &operations, &copies}) each->add_to(rounds);
}

}  // namespace fsdp::calibrate
