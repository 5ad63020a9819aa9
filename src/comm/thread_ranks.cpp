// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/thread_ranks.hpp>

#include <algorithm>

#include "threads_group.hpp"

namespace fsdp::comm {

ThreadRanks::ThreadRanks(int ranks, const Options& options) : options_(options) {
  require<InputError>(ranks > 0, "threads communicator: ", ranks, " ranks were asked for; at least 1 is needed");
  options_.threads = std::max(options.threads, 1);
  world_ = std::make_shared<ThreadsWorld>();
  group_ = std::make_shared<ThreadsGroup>(world_, ranks);
}

int ThreadRanks::size() const { return group_->size(); }

std::unique_ptr<ThreadsRank> ThreadRanks::joined(int rank) {
  require<InputError>(rank >= 0 && rank < size(), "threads communicator: rank ", rank, " joins; ranks are 0 to ",
                      size() - 1);
  require<InputError>(!group_->peer(rank).joined.exchange(true), "threads communicator: rank ", rank,
                      " joins a second time; keep the communicator that it got");
  return std::make_unique<ThreadsRank>(group_, rank, rank, options_, ThreadsRank::End::is_reported_here);
}

void ThreadRanks::fail(int rank, std::string_view why) noexcept { world_->poison(rank, why); }

}  // namespace fsdp::comm
