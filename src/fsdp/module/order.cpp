// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/order.hpp>

#include <cstddef>
#include <iterator>
#include <numeric>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {

Order mirrored(std::span<const int> uses) {
  Order order;
  for (const int unit : uses) order.list.push_back({sharding::Action::forward, unit});
  for (auto use = uses.rbegin(); use != uses.rend(); ++use) order.list.push_back({sharding::Action::backward, *use});
  return order;
}

Order mirrored(std::initializer_list<int> uses) { return mirrored(std::span(uses.begin(), uses.size())); }

Order mirrored(std::span<const int> uses, int head) {
  Order order = mirrored(uses);
  order.list.insert(order.list.begin() + std::ssize(uses), {sharding::Action::loss, head});
  return order;
}

Order mirrored(std::initializer_list<int> uses, int head) {
  return mirrored(std::span(uses.begin(), uses.size()), head);
}

Order chain(int units) {
  require<InputError>(units >= 0, "order: a chain of ", units, " units; give at least 0");
  std::vector<int> uses(static_cast<std::size_t>(units));
  std::iota(uses.begin(), uses.end(), 0);
  return mirrored(uses);
}

}  // namespace fsdp
