// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/thread_ranks.hpp>

#include "threads_group.hpp"

namespace fsdp::comm {

ThreadRanks::ThreadRanks(int ranks, const Options& options) : options_(options) {
  options_.threads = threads_of_guest(options);
  group_ = group_of_threads(ranks);
}

int ThreadRanks::size() const { return group_->size(); }

std::unique_ptr<ThreadsRank> ThreadRanks::joined(int rank) {
  require_rank(rank);
  require<InputError>(!group_->peer(rank).joined.exchange(true), "threads communicator: rank ", rank,
                      " joins a second time; keep the communicator that it got");
  return std::make_unique<ThreadsRank>(group_, rank, rank, options_, ThreadsRank::End::is_reported_here);
}

void ThreadRanks::fail(int rank, std::string_view why) {
  require_rank(rank);
  group_->world->poison(rank, why);
}

void ThreadRanks::require_rank(int rank) const {
  require<InputError>(rank >= 0 && rank < size(), "threads communicator: rank ", rank, "; ranks are 0 to ", size() - 1);
}

}  // namespace fsdp::comm
