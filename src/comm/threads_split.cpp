// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of ThreadsRank that makes a communicator of a subset of its ranks.
#include <tessera/comm/threads_rank.hpp>

#include "threads_group.hpp"

namespace fsdp::comm {

std::unique_ptr<ThreadsRank> ThreadsRank::split(int color) {
  struct Vote {
    int color;
    int world_rank;
    std::shared_ptr<ThreadsGroup>* group;
  };
  // The lowest rank of each color makes the group; all copy its pointer before it goes out of scope.
  std::shared_ptr<ThreadsGroup> made;
  const Vote mine{.color = color, .world_rank = world_rank_, .group = &made};
  std::vector<Vote> votes(static_cast<std::size_t>(size()));
  const std::vector<std::int64_t> counts(votes.size(), sizeof(Vote));
  const auto gather = [&] {
    Transfer& transfer = prepare();
    describe(transfer, Op::all_gather, std::span<const Segment<std::uint8_t>>{}, DType::u8);
    transfer.values = true;
    transfer.segments.push_back({.local = reinterpret_cast<std::byte*>(const_cast<Vote*>(&mine)),
                                 .full = reinterpret_cast<std::byte*>(votes.data()),
                                 .counts = counts});
    wait(start());
  };
  gather();
  int ranks = 0;
  int rank = 0;
  int leader = -1;
  std::vector<int> world_ranks;
  for (int peer = 0; peer < size(); ++peer) {
    if (votes[static_cast<std::size_t>(peer)].color != color) continue;
    if (leader < 0) leader = peer;
    world_ranks.push_back(votes[static_cast<std::size_t>(peer)].world_rank);
    if (peer < rank_) ++rank;
    ++ranks;
  }
  if (leader == rank_) made = std::make_shared<ThreadsGroup>(group_->world, ranks);
  gather();
  std::shared_ptr<ThreadsGroup> group = *votes[static_cast<std::size_t>(leader)].group;
  gather();
  auto part = std::make_unique<ThreadsRank>(std::move(group), rank, world_rank_, monitor_.options, end_);
  part->monitor().world_ranks = std::move(world_ranks);
  return part;
}

}  // namespace fsdp::comm
