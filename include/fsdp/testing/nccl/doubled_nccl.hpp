// SPDX-License-Identifier: Apache-2.0
/// @file
/// comm::Nccl over the fake NCCL library, on the asynchronous device of the host: a communicator for stacks and suites
/// that needs neither NCCL nor a GPU.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tessera/comm/nccl.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/testing/nccl/double.hpp>
#include <tessera/fsdp/testing/queued/queued_cpu.hpp>
#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::testing {

/// Ranks are threads, which `run` starts. A problem that the fake library records fails the running test.
class DoubledNccl : public comm::Nccl<QueuedCpu> {
  using Base = comm::Nccl<QueuedCpu>;

 public:
  DoubledNccl split(int color) { return DoubledNccl(Base::split(color)); }

  /// Starts the ranks and calls f(communicator) on each. Returns f's status.
  template <class F>
  static int run(int ranks, const comm::Options& options, F f) {
    using Double = NcclDouble<QueuedCpu>;
    Double::problems.clear();
    Double::groups.clear();
    const comm::nccl::Id id = comm::nccl::make_id(Double::table());
    const int status = comm::Threads<>::run(ranks, options, [&](auto& host) {
      DoubledNccl communicator(Base(Double::table(), {.rank = host.rank(), .size = host.size(), .id = id}, options));
      return comm::run_rank(f, communicator);
    });
    const std::string where = message("a run of ", ranks, ranks == 1 ? " rank" : " ranks");
    for (const std::string& problem : Double::problems) fail("NCCL can do every call that it is given", where, problem);
    constexpr std::string_view given_back = "all that NCCL gave is given back when the ranks have ended";
    expect_value(given_back, where, "the number of communicators that are left", Double::communicators, 0);
    expect_value(given_back, where, "the number of blocks of memory that are left", Double::memory.size(),
                 std::size_t{0});
    return status;
  }

 private:
  explicit DoubledNccl(Base base) : Base(std::move(base)) {}
};

}  // namespace fsdp::testing
