// SPDX-License-Identifier: Apache-2.0
#include <tessera/tiling/chosen.hpp>

namespace fsdp::tiling {

Chosen::Chosen(RunTime policy)
    : policy_(std::make_shared<const RunTime>(policy)),
      plan_([](const void* held, const Problem& problem) { return static_cast<const RunTime*>(held)->plan(problem); }) {
}

TilePlan Chosen::untiled(const void*, const Problem& problem) { return Untiled{}.plan(problem); }

}  // namespace fsdp::tiling
