// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sequence/ulysses.hpp>

#include <support/alternating_llama.hpp>
#include <support/stack_run.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_alternating(const RunOptions& options) {
  return run_threads<AlternatingLlama<Stack<FullyShard<>, comm::Threads<>, Fp32, tiling::RunTimeTiling, Ulysses>>>(
      options);
}

}  // namespace fsdp::test
