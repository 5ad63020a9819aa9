// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/order.hpp>

#include <cstddef>
#include <numeric>

namespace fsdp {

Order mirrored(std::span<const int> uses) {
  Order order;
  for (const int unit : uses) order.list.push_back({sharding::Action::forward, unit});
  for (auto use = uses.rbegin(); use != uses.rend(); ++use) order.list.push_back({sharding::Action::backward, *use});
  return order;
}

Order chain(int units) {
  std::vector<int> uses(static_cast<std::size_t>(units));
  std::iota(uses.begin(), uses.end(), 0);
  return mirrored(uses);
}

}  // namespace fsdp
