// SPDX-License-Identifier: Apache-2.0
// expect 1: fsdp: a hybrid strategy on a mesh of one axis has nothing to replicate over
// expect 2: fsdp: this strategy works on all ranks alike, and the mesh has two axes
// expect 3: fsdp: a buffer sharded over the outer axis alone is no contiguous range; shard the inner axis first
// expect 4: fsdp: redistribute cannot change this placement into that one
#include <utility>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/models/llama.hpp>

namespace fsdp {

using Comm = comm::Threads<>;
template <class Sharding>
using Model = Llama<Stack<Sharding, Comm, Fp32, tiling::Untiled>>;
using Hybrid = HybridShard<FullyShard<>>;
template <class... P>
using Buffer = buffer::DistributedBuffer<float, device::Cpu, P...>;
using buffer::Partial, buffer::Replicate, buffer::Shard;

template <class Sharding, int axes>
void make(comm::Mesh<Comm, axes> mesh) {
  ShardedModel<Model<Sharding>>(std::move(mesh), Model<Sharding>(LlamaConfig{}), Sharding{}, {});
}

#if CASE == 0
void use(Comm& world) {
  make<Hybrid>(comm::Mesh(world, 2));
  make<FullyShard<>>(comm::Mesh(world));
  Buffer<Replicate, Shard> shard;
  redistribute(world, shard, Buffer<Replicate, Replicate>(), comm::Label{}).wait();
}
#elif CASE == 1
void use(Comm& world) { make<Hybrid>(comm::Mesh(world)); }
#elif CASE == 2
void use(Comm& world) { make<FullyShard<>>(comm::Mesh(world, 2)); }
#elif CASE == 3
Buffer<Shard, Replicate> buffer;
#elif CASE == 4
void use(Comm& world) { redistribute(world, Buffer<Shard, Shard>(), Buffer<Replicate, Replicate>(), comm::Label{}); }
#endif

}  // namespace fsdp
