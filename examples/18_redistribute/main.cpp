// SPDX-License-Identifier: Apache-2.0
// 18: placements and redistribute, used without units, schedules or optimizers.
//
// Two tensors are one buffer, sharded over three ranks by rows. Their shards are unsharded (an all-gather), and partial
// sums become shards (a reduce-scatter, rounded to bf16 on the wire). Prints what each rank stores, and the bytes of
// each operation.
//
// Try next: buffer::Flat instead of PerParameter; or redistribute(ranks, whole, weights, ...), which does not compile.
#include <cstdio>
#include <utility>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/buffer/distributed_buffer.hpp>

namespace buffer = fsdp::buffer;
using Comm = fsdp::comm::Threads<>;
template <class... Placement>
using Buffer = fsdp::buffer::DistributedBuffer<float, fsdp::device::Cpu, Placement...>;

int main() {
  const std::vector<fsdp::Shape> shapes{{5, 4}, {7}};
  const buffer::Layout layout = buffer::PerParameter::of_group(shapes, 3);
  return Comm::run(3, {}, [&](Comm& ranks) {
    const int rank = ranks.rank();
    std::vector<float> shard(static_cast<std::size_t>(layout.local_size(rank)));
    std::vector<float> full(static_cast<std::size_t>(layout.full_size)), sums(full);
    const Buffer<buffer::Shard> weights(layout, rank, shard.data());
    for (const buffer::TensorRange& range : weights.ranges())
      for (std::int64_t i = 0; i < range.count; ++i)
        weights.range(range)[i] = static_cast<float>(100 * range.tensor + range.begin + i);

    const Buffer<buffer::Replicate> whole(layout, rank, full.data());
    redistribute(ranks, weights, whole, {"weights"}).wait();
    const std::int64_t gathered = ranks.monitor().totals.copied_bytes;

    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = 1.0f + static_cast<float>(rank);
    Buffer<buffer::Partial> partial(layout, rank, sums.data());
    buffer::redistribute<fsdp::bf16>(ranks, std::move(partial), weights, fsdp::Write::overwrite, {"sums"}).wait();

    for (int turn = 0; turn < ranks.size(); ++turn) {
      fsdp::comm::barrier(ranks);
      if (turn != rank) continue;
      for (const buffer::TensorRange& range : weights.ranges())
        std::printf("rank %d has elements %lld to %lld of tensor %lld; the first sum is %g\n", rank,
                    static_cast<long long>(range.begin), static_cast<long long>(range.begin + range.count - 1),
                    static_cast<long long>(range.tensor), static_cast<double>(weights.range(range)[0]));
      if (rank == 0)
        std::printf("whole, its last element is %g; the gather moved %lld bytes here, the reduction %lld\n",
                    static_cast<double>(whole.tensor(1)[6]), static_cast<long long>(gathered),
                    static_cast<long long>(ranks.monitor().totals.copied_bytes - gathered));
      std::fflush(stdout);
    }
    fsdp::comm::barrier(ranks);
    return 0;
  });
}
