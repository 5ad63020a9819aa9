// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stacks of a Llama over Threads.
#pragma once

#include <tessera/comm/threads.hpp>

#include <support/stack_run.hpp>

namespace fsdp::test {

template <class Sharding, class Precision = Fp32, class Sequence = WholeSequences>
RunResults run_on_threads(const RunOptions& options) {
  return run_threads<Llama<Stack<Sharding, comm::Threads<>, Precision, tiling::RunTimeTiling, Sequence>>>(options);
}
/// The same in float, with digests and verification.
template <class Sharding, class Sequence = WholeSequences>
RunResults run_watching(const RunOptions& options) {
  return run_threads<Llama<Stack<Sharding, comm::Threads<>, Fp32, tiling::RunTimeTiling, Sequence>>, true>(options);
}

}  // namespace fsdp::test
