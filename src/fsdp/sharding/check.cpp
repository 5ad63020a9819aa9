// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/check.hpp>

#include <string>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/sharding/check_schedule.hpp>
#include <tessera/fsdp/sharding/slots.hpp>

namespace fsdp::sharding {

void check(const Schedule& schedule, const Problem& problem, const Names& names) {
  const CheckResult result = check_schedule(schedule, problem);
  if (result.holds()) return;
  std::string sentence;
  MessageWriter(sentence, schedule, problem, names).write(result);
  throw InputError(sentence);
}

Schedule checked_and_placed(const Schedule& schedule, const Problem& problem, const Names& names) {
  check(schedule, problem, names);
  Schedule placed = assign_slots(schedule, problem);
  check(placed, problem, names);
  return placed;
}

std::uint64_t digest_of(const Schedule& schedule) {
  std::uint64_t hash = hash_seed;
  for (const Task& task : schedule)
    for (const int field : {static_cast<int>(task.action), task.index, task.micro_batch, task.slot, task.stage})
      hash = hashed(hash, static_cast<std::int64_t>(field));
  return hash;
}

}  // namespace fsdp::sharding
