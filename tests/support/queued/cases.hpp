// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks tested on an asynchronous device, and their numbers of ranks.
#pragma once

#include <ostream>

#include <support/stack_runner.hpp>

namespace fsdp::test {

struct QueuedCase {
  const char* stack;
  int ranks;

  friend std::ostream& operator<<(std::ostream& out, const QueuedCase& one) { return out << one.stack; }
};

inline constexpr QueuedCase queued_cases[] = {
    {"fsdp2", 3},    {"fsdp2:no-reshard", 2}, {"fsdp2:prefetch=2", 2}, {"zero1", 2},
    {"zero2", 2},    {"zero3:persist=20", 2}, {"replicated", 2},       {"fsdp2:2", 4},
    {"hybrid:2", 4}, {"hybrid:2:full", 4}};

}  // namespace fsdp::test
