// SPDX-License-Identifier: Apache-2.0
/// @file
/// The production comm::Nccl; its ranks are threads, each with a fake GPU, which meet as processes do.
#pragma once

#include <utility>

#include <comm/free_port.hpp>
#include <cuda_host/on_doubles.hpp>

namespace fsdp::testing::cuda_host {

class NcclRanks : public comm::Nccl<> {
  using Base = comm::Nccl<>;

 public:
  NcclRanks split(int color) { return NcclRanks(Base::split(color)); }

  template <class F>
  static int run(int ranks, const comm::Options& options, F f) {
    const int port = comm::free_port();
    return comm::Threads<>::run(ranks, options, [&](auto& host) {
      const comm::JobPlace place = comm::place_of(host.rank(), ranks, port);
      return Base::run(comm::nccl::library(), place, options, [&](Base& base) {
        NcclRanks communicator(std::move(base));
        return comm::run_rank(f, communicator);
      });
    });
  }

 private:
  explicit NcclRanks(Base base) : Base(std::move(base)) {}
};

}  // namespace fsdp::testing::cuda_host
