// SPDX-License-Identifier: Apache-2.0
// Lists of structs (tessera/fsdp/core/lists.hpp).
#include <tessera/fsdp/plan/plan.hpp>

#include <vector>

template class std::vector<fsdp::plan::PartPlan>;
