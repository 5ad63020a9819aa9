// SPDX-License-Identifier: Apache-2.0
// Meta for QueuedCpu.
#include <device/cpu/planner.hpp>
#include <device/meta_operations.hpp>

#include <support/queued/queued_cpu.hpp>

namespace fsdp::device {

template <>
struct MetaOf<test::QueuedCpu>::Stream::Planner : cpu::Planner {
  using cpu::Planner::Planner;
};

FSDP_META(test::QueuedCpu)

}  // namespace fsdp::device
