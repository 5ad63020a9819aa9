// SPDX-License-Identifier: Apache-2.0
/// Any call of CUDA, cuBLASLt or NCCL may fail: the run then ends soon with an error and releases everything.
#include <algorithm>
#include <chrono>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include <cuda_host/on_doubles.hpp>
#include <support/small_llama.hpp>
#include <support/stacks/cuda_host_stacks.hpp>

namespace fsdp::testing::cuda_host {
namespace {

class CudaHost_training_faults : public OnDoubles {
 protected:
  void start() {
    machine().reset(2);
    machine().patience = std::chrono::seconds(20);
  }
  /// Three steps; the third replays the graph that the second captured.
  static void run() {
    test::RunOptions options = test::uneven_options(2);
    options.config = test::uneven_llama(1);
    options.steps = 3;
    options.collects = false;
    options.graphs = true;
    options.deadline = std::chrono::seconds(2);
    test::cuda_host_stacks(options);
  }
  /// Fails the nth call, or an earlier one if this run makes fewer: the number of polling calls varies.
  void fail_run(const std::string& function, int nth) {
    const auto begin = std::chrono::steady_clock::now();
    start();
    machine().fail(function, cudaErrorUnknown, nth);
    try {
      run();
    } catch (const Error&) {
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
      return;
    }
    if (machine().will_fail() && nth > 1) return fail_run(function, nth / 2);
    ADD_FAILURE() << "no error";
  }
  /// Functions whose failure may go unreported: destructors call them and cannot throw; an unknown version is not
  /// printed.
  static bool may_fail_unseen(const std::string& function) {
    for (const char* word : {"Destroy", "Free", "Finalize", "cudaDeviceSynchronize", "cudaRuntimeGetVersion"})
      if (function.find(word) != std::string::npos) return true;
    return false;
  }
};

TEST_F(CudaHost_training_faults, AFailedCallEndsTheRunAndReleasesEverything) {
  start();
  run();
  std::map<std::string, int> calls = machine().calls();
  EXPECT_GT(calls.size(), 25u);
  for (const auto& [function, count] : calls) {
    if (may_fail_unseen(function)) continue;
    for (const int nth : {1, std::max(2, count / 2)}) {
      if (nth > count) continue;
      SCOPED_TRACE(message(function, ", call ", nth, " of ", count));
      fail_run(function, nth);
      expect_clean();
    }
  }
  start();
}

}  // namespace
}  // namespace fsdp::testing::cuda_host
