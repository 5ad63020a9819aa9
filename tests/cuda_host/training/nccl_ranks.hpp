// SPDX-License-Identifier: Apache-2.0
/// @file
/// The production comm::Nccl; its ranks are threads, each with a fake GPU.
#pragma once

#include <utility>

#include <cuda_host/on_doubles.hpp>

namespace fsdp::testing::cuda_host {

class NcclRanks : public comm::Nccl<> {
  using Base = comm::Nccl<>;

 public:
  NcclRanks split(int color) { return NcclRanks(Base::split(color)); }

  template <class F>
  static int run(int ranks, const comm::Options& options, F f) {
    const comm::nccl::Id id = comm::nccl::make_id(comm::nccl::library());
    return comm::Threads<>::run(ranks, options, [&](auto& host) {
      device::use_cuda_device(host.rank());
      NcclRanks communicator(
          Base(comm::nccl::library(), {.rank = host.rank(), .size = host.size(), .id = id}, options));
      return comm::run_rank(f, communicator);
    });
  }

 private:
  explicit NcclRanks(Base base) : Base(std::move(base)) {}
};

}  // namespace fsdp::testing::cuda_host
