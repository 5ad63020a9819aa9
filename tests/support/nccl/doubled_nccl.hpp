// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stacks whose ranks are threads that take a double for NCCL, on an asynchronous device of the host.
#pragma once

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <comm/nccl.hpp>
#include <comm/threads.hpp>

#include <support/nccl/double.hpp>
#include <support/queued/modules.hpp>
#include <support/stack_run.hpp>

namespace fsdp::test {

/// Nccl that starts its own ranks. What the double finds wrong fails the test.
class DoubledNccl : public comm::Nccl<QueuedCpu> {
  using Base = comm::Nccl<QueuedCpu>;

 public:
  DoubledNccl split(int color) { return DoubledNccl(Base::split(color)); }

  template <class F>
  static int run(int ranks, const comm::Options& options, F f) {
    using Double = comm::NcclDouble<QueuedCpu>;
    Double::problems.clear();
    Double::groups.clear();
    const comm::nccl::Id id = comm::nccl::make_id(Double::table());
    const int status = comm::Threads<>::run(ranks, options, [&](auto& host) {
      DoubledNccl communicator(Base(Double::table(), {.rank = host.rank(), .size = host.size(), .id = id}, options));
      return comm::run_rank(f, communicator);
    });
    for (const std::string& problem : Double::problems) ADD_FAILURE() << problem;
    EXPECT_EQ(Double::communicators, 0);
    EXPECT_TRUE(Double::memory.empty());
    return status;
  }

 private:
  explicit DoubledNccl(Base base) : Base(std::move(base)) {}
};

template <class Sharding>
using NcclLlama = Llama<Stack<Sharding, DoubledNccl, Fp32, tiling::RunTime>>;

}  // namespace fsdp::test
