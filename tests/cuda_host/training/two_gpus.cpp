// SPDX-License-Identifier: Apache-2.0
// A program on the doubles that knows nothing of them finds two GPUs, and is ended by nobody else than its deadlines.
#include "../doubles/machine.hpp"

namespace fsdp::testing::cuda_host {
namespace {

[[maybe_unused]] const bool there = [] {
  Machine::instance().reset(2);
  Machine::instance().patience = std::chrono::minutes(1);
  return true;
}();

}  // namespace
}  // namespace fsdp::testing::cuda_host
