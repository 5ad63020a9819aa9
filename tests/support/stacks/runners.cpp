// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/runners.hpp>

#include <fsdp/core/error.hpp>

namespace fsdp::test {

RunResults run(std::string_view stack, const RunOptions& options) {
  if (stack == "fsdp2") return run_fsdp2(options);
  if (stack == "fsdp2:no-reshard") return run_fsdp2_no_reshard(options);
  if (stack == "zero1") return run_zero1(options);
  if (stack == "zero2") return run_zero2(options);
  if (stack == "zero3") return run_zero3(options);
  if (stack == "replicated") return run_replicated(options);
  if (stack == "fsdp2/bf16") return run_fsdp2_bf16(options);
  if (stack == "watched") return run_watched(options);
  throw InputError(message("no stack of the tests is called '", stack, "'"));
}

}  // namespace fsdp::test
