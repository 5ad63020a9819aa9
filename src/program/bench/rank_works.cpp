// SPDX-License-Identifier: Apache-2.0
#include "rank_works.hpp"

#include <algorithm>

namespace fsdp::bench {

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

template class RankWorks<device::Cpu>;

}  // namespace fsdp::bench
