// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sequence/ulysses.hpp>

#include <support/alternating_llama.hpp>
#include <support/listed_llama.hpp>
#include <support/stack_run.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {
namespace {

using Alternating = AlternatingLlama<Stack<FullyShard<>, comm::Threads<>, Fp32, tiling::RunTimeTiling, Ulysses>>;

template <class Model>
std::vector<std::string> names_in(const RunOptions& options) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameter_list(Model(options.config, options.units)))
    names.push_back(parameter.name);
  return names;
}

}  // namespace

RunResults run_alternating(const RunOptions& options) {
  // Runs of all models assemble and save the tensors that a Llama lists.
  EXPECT_EQ(names_in<Alternating>(options), names_in<ListedLlama>(options));
  return run_threads<Alternating>(options);
}

}  // namespace fsdp::test
