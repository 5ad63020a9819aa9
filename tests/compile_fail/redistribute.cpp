// SPDX-License-Identifier: Apache-2.0
// expect 1: fsdp: redistribute cannot change this placement into that one; the moves are Shard to Replicate
// expect 2: fsdp: redistribute cannot change this placement into that one; the moves are Shard to Replicate
// expect 3: fsdp: redistribute uses a partial sum up: pass it with std::move
// expect 4: fsdp: redistribute of a partial sum rounds what it sends to a wire type: write redistribute<float>(...)
// expect 5: fsdp: redistribute cannot change this placement into that one; the moves are Shard to Replicate
// expect 6: fsdp: this communicator cannot reduce with this wire type, because it has no sum of it
// expect 7: fsdp: redistribute cannot change this placement of activations into that one; the moves are OwnRows
#include <utility>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/buffer/distributed_buffer.hpp>
#include <tessera/fsdp/buffer/sequence.hpp>

namespace fsdp::buffer {

using Comm = comm::Threads<>;
template <class P>
using Buffer = DistributedBuffer<float, device::Cpu, P>;

void moves(Comm& communicator, Buffer<Shard> shard, Buffer<Replicate> whole, Buffer<Partial> partial,
           comm::Label label) {
#if CASE == 0
  redistribute(communicator, shard, whole, label).wait();
  redistribute<float>(communicator, std::move(partial), shard, Write::overwrite, label).wait();
  redistribute<bf16>(communicator, std::move(partial), whole, label).wait();
  shard = redistribute(whole);
#elif CASE == 1
  redistribute(communicator, shard, partial, label);
#elif CASE == 2
  redistribute<float>(communicator, shard, partial, Write::overwrite, label);
#elif CASE == 3
  redistribute<float>(communicator, partial, shard, Write::overwrite, label);
#elif CASE == 4
  redistribute(communicator, std::move(partial), shard, Write::overwrite, label);
#elif CASE == 5
  redistribute<float>(communicator, whole, partial, label);
#elif CASE == 6
  redistribute<double>(communicator, std::move(partial), shard, Write::overwrite, label).wait();
#endif
}

void moves(Comm& communicator, const std::vector<Activation<const float, OwnRows>>& rows,
           const std::vector<Activation<float, OwnHeads>>& heads,
           const std::vector<Activation<float, OwnRows>>& others) {
#if CASE == 0
  redistribute(communicator, rows, heads).wait();
#elif CASE == 7
  redistribute(communicator, rows, others).wait();
#endif
  static_cast<void>(communicator), static_cast<void>(rows), static_cast<void>(heads), static_cast<void>(others);
}

}  // namespace fsdp::buffer
