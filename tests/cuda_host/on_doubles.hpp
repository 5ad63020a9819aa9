// SPDX-License-Identifier: Apache-2.0
/// @file
/// Fixture for host code on the fakes of CUDA's libraries: no rule may be broken, and no object may be leaked.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <tessera/comm/nccl.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/device/cuda.hpp>

#include "doubles/cublaslt.hpp"
#include "doubles/machine.hpp"
#include "doubles/nccl.hpp"

namespace fsdp::testing::cuda_host {

/// Device memory of a given number of bytes, which tests access from the host.
struct DeviceMemory {
  explicit DeviceMemory(std::int64_t bytes) : block(ledger, device::MemoryKind::weights, bytes) {}
  std::byte* data() const { return block.data(); }

  device::Ledger ledger;
  device::Block<device::Cuda> block;
};

inline cudaStream_t native(const device::Cuda::Queue& queue) { return static_cast<cudaStream_t>(queue.native()); }

class OnDoubles : public ::testing::Test {
 protected:
  void SetUp() override {
    machine().reset(2);
    ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
    ::setenv("NCCL_NVLS_ENABLE", "0", 1);
    HeuristicState::next = CUBLAS_STATUS_SUCCESS;
    nccl().tells_of_aborts = false;
  }
  void TearDown() override {
    expect_clean();
    for (auto& failure : nccl().failures) failure = FakeNccl::Result::success;
    for (auto& delay : nccl().delays) delay = std::chrono::milliseconds(0);
    machine().reset(2);
  }
  /// Expects that no rule was broken and that every object was released.
  static void expect_clean() {
    for (const std::string& problem : machine().take_problems()) ADD_FAILURE() << problem;
    for (const auto& [kind, count] : machine().held()) ADD_FAILURE() << count << " " << kind << " are left";
  }
  /// Waits for a problem that contains `text`, and clears all problems.
  static void expect_problem(const std::string& text) {
    std::string all;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    while (all.find(text) == std::string::npos && std::chrono::steady_clock::now() < limit) {
      for (const std::string& problem : machine().take_problems()) all += problem + "\n";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    expect_has(all, text);
  }
  static void expect_has(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
  }
  /// Blocks the stream until `go` is set.
  static void hold(const device::Cuda::Queue& queue, std::atomic<bool>& go) {
    machine().submit(native(queue), [&] {
      while (!go) std::this_thread::yield();
    });
  }
};

/// The place of a rank in a process with the settings that OnDoubles makes.
inline comm::nccl::Seat seat_of(const comm::Threads<>& host, const comm::nccl::Id& id) {
  return {.rank = host.rank(),
          .size = host.size(),
          .id = id,
          .settings = {.launch_order = comm::nccl::LaunchOrder::implicit, .nvls = comm::nccl::Nvls::off}};
}

/// Calls f(communicator) on every rank; ranks are threads, each with its own GPU.
inline void run_ranks(int ranks, const comm::Options& options, FunctionRef<void(comm::Nccl<>&)> f) {
  const comm::nccl::Id id = comm::nccl::make_id(comm::nccl::library());
  comm::Threads<>::run(ranks, {}, [&](comm::Threads<>& host) {
    device::use_cuda_device(host.rank());
    comm::Nccl<> communicator(comm::nccl::library(), seat_of(host, id), options);
    f(communicator);
  });
}

}  // namespace fsdp::testing::cuda_host
