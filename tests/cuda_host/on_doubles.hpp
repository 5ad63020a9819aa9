// SPDX-License-Identifier: Apache-2.0
/// @file
/// A test of host code on the doubles of CUDA's libraries: no rule may be broken, and nothing may be left.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include <tessera/comm/nccl.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cuda.hpp>

#include "doubles/cublaslt.hpp"
#include "doubles/machine.hpp"
#include "doubles/nccl.hpp"

namespace fsdp::testing::cuda_host {

class OnDoubles : public ::testing::Test {
 protected:
  static Machine& machine() { return Machine::instance(); }

  void SetUp() override {
    machine().reset(2);
    HeuristicState::next = CUBLAS_STATUS_SUCCESS;
    tell_of_nccl_aborts(true);
  }
  void TearDown() override {
    for (const std::string& problem : machine().take_problems()) ADD_FAILURE() << problem;
    for (const auto& [kind, count] : machine().held()) ADD_FAILURE() << count << " " << kind << " are left";
    for (int rank = 0; rank < 8; ++rank) fail_nccl(rank, ncclSuccess), slow_nccl(rank, {});
    machine().reset(2);
  }
};

/// Calls f(communicator) on every rank; ranks are threads, each with a GPU of its own.
template <class F>
void run_ranks(int ranks, const comm::Options& options, F f) {
  const comm::nccl::Id id = comm::nccl::make_id(comm::nccl::library());
  comm::Threads<>::run(ranks, {}, [&](auto& host) {
    device::use_cuda_device(host.rank());
    comm::Nccl<> communicator(comm::nccl::library(), {.rank = host.rank(), .size = ranks, .id = id}, options);
    f(communicator);
  });
}

}  // namespace fsdp::testing::cuda_host
