// SPDX-License-Identifier: Apache-2.0
/// @file
/// Meta for the CPU.
#include "cpu/planner.hpp"
#include "meta_operations.hpp"

namespace fsdp::device {

template <>
struct MetaOf<Cpu>::Stream::Planner : cpu::Planner {
  using cpu::Planner::Planner;
};

FSDP_META(Cpu)

}  // namespace fsdp::device
