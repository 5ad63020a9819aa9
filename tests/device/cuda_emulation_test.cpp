// SPDX-License-Identifier: Apache-2.0
/// The emulation detects the error in small kernels, each of which breaks one rule.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <support/cuda_emulation/controls.hpp>
#include <support/cuda_emulation/emulation.hpp>
#include <tessera/fsdp/device/cuda.hpp>

namespace fsdp::device::cuda {
namespace {

constexpr int count = 64;  ///< threads of a block: two warps

/// An allocation of floats on the device.
struct Floats {
  explicit Floats(std::int64_t elements) : bytes(elements * 4), data(reinterpret_cast<float*>(Cuda::allocate(bytes))) {}
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats() { Cuda::deallocate(reinterpret_cast<std::byte*>(data), bytes); }
  std::int64_t bytes;
  float* data;
};

/// Returns the error that the emulation reports for a kernel; empty if there is none.
template <class... Parameters, class... Arguments>
std::string error_of(void (*kernel)(Parameters...), Grid grid, std::size_t shared, const Arguments&... arguments) {
  try {
    launch({}, "wrong", kernel, grid, shared, arguments...);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}
template <class... Parameters, class... Arguments>
std::string error_of_block(void (*kernel)(Parameters...), const Arguments&... arguments) {
  return error_of(kernel, {.threads = count}, 1024, arguments...);
}

void expect_in(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks " << part;
}

float* shared_floats() { return reinterpret_cast<float*>(shared_memory()); }

// ---- Races

template <bool Barrier>
__global__ void reverse_in_shared(float* data) {
  shared_floats()[threadIdx.x] = data[threadIdx.x];
  if (Barrier) __syncthreads();
  data[threadIdx.x] = shared_floats()[count - 1 - threadIdx.x];
}

TEST(CudaEmulation, DetectsAMissingBarrierInAnyOrderOfThreads) {
  const Floats data(count);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    emulation::seed_order(seed);
    EXPECT_EQ(error_of_block(reverse_in_shared<true>, data.data), "");
    expect_in(error_of_block(reverse_in_shared<false>, data.data),
              {"wrong, block (0, 0): thread ", " of dynamic shared memory", "SEED="});
  }
  emulation::seed_order(0);
}

template <bool Barrier>
__global__ void rotate_in_warp(float* data) {
  __shared__ float kept[count];
  const unsigned other = threadIdx.x / warp * warp + (threadIdx.x + 1) % warp;
  kept[threadIdx.x] = data[threadIdx.x];
  if (Barrier)
    __syncwarp();
  else
    exchange(0, 1);  // a shuffle does not order memory accesses
  data[threadIdx.x] = kept[other];
}

TEST(CudaEmulation, AWarpBarrierOrdersMemoryAccessesButAShuffleDoesNot) {
  const Floats data(count);
  EXPECT_EQ(error_of_block(rotate_in_warp<true>, data.data), "");
  expect_in(error_of_block(rotate_in_warp<false>, data.data), {"static shared memory", "writes, and no barrier"});
}

/// Lanes of both warps read an element, then one lane writes it.
template <bool Block>
__global__ void write_what_others_read(float* data) {
  if (threadIdx.x == 0) shared_floats()[0] = 1;
  __syncthreads();
  data[threadIdx.x] = shared_floats()[0];
  if (Block)
    __syncthreads();
  else
    __syncwarp();
  if (threadIdx.x == 40) shared_floats()[0] = 2;
}

TEST(CudaEmulation, AWriteAfterReadsOfOtherWarpsNeedsABlockBarrier) {
  const Floats data(count);
  EXPECT_EQ(error_of_block(write_what_others_read<true>, data.data), "");
  EXPECT_NE(error_of_block(write_what_others_read<false>, data.data), "");
}

template <bool Race>
__global__ void write_by_block(float* data) {
  if (threadIdx.x == 0) data[Race ? blockIdx.x / 2 : blockIdx.x] = 1;
}

__global__ void write_element(float* data, int index) { data[index] = 1; }

TEST(CudaEmulation, DetectsRacesBetweenBlocksThatRunSequentially) {
  const Floats data(4);
  EXPECT_EQ(error_of(write_by_block<false>, {.x = 4, .threads = 32}, 0, data.data), "");
  EXPECT_EQ(error_of(write_by_block<false>, {.x = 4, .threads = 32}, 0, data.data), "");  // launches are ordered
  expect_in(error_of(write_by_block<true>, {.x = 4, .threads = 32}, 0, data.data), {"thread 0 of another block"});
  expect_in(error_of_block(write_element, data.data, 0), {"an allocation of 16 bytes", "and no barrier between"});
}

/// Neighbouring threads write the two halves of a 4-byte word.
__global__ void write_neighbours(bf16* data) { data[threadIdx.x] = bf16(1.0f); }

TEST(CudaEmulation, WritesToNeighbouringBytesAreNotARace) {
  const Floats data(count / 2);
  EXPECT_EQ(error_of_block(write_neighbours, reinterpret_cast<bf16*>(data.data)), "");
}

// ---- Copies

enum class Copies { right, without_wait, without_barrier, without_group };

template <Copies How>
__global__ void copy_through_shared(float* data) {
  Wide* const tile = reinterpret_cast<Wide*>(shared_memory());
  copy_async(tile + threadIdx.x, data + 4 * threadIdx.x, true);
  if (How != Copies::without_group) end_copies();
  if (How != Copies::without_wait) wait_for_copies<0>();
  if (How != Copies::without_barrier) __syncthreads();
  data[4 * threadIdx.x] = shared_floats()[4 * (count - 1 - threadIdx.x)];
}

TEST(CudaEmulation, AsyncCopiesNeedAWaitThenABlockBarrier) {
  const Floats data(4 * count);
  EXPECT_EQ(error_of_block(copy_through_shared<Copies::right>, data.data), "");
  for (const auto kernel : {copy_through_shared<Copies::without_wait>, copy_through_shared<Copies::without_barrier>,
                            copy_through_shared<Copies::without_group>})
    EXPECT_NE(error_of_block(kernel, data.data), "");
  expect_in(error_of_block(copy_through_shared<Copies::without_wait>, data.data), {"copies to and has not waited for"});
}

// ---- Lanes that diverge

enum class Meeting { votes, multiplies, loads, waits, leaves };

template <Meeting How>
__global__ void meet_wrongly(float* data) {
  std::uint32_t four[4] = {};
  float sums[4] = {};
  if (threadIdx.x != 35) {
    data[threadIdx.x] = exchange(1.0f, 1);
  } else if (How == Meeting::votes) {
    ballot(true);
  } else if (How == Meeting::multiplies) {
    multiply_add<bf16>(sums, four, 0, 0);
  } else if (How == Meeting::loads) {
    load_matrices(four, data + 32);
  } else if (How == Meeting::waits) {
    __syncthreads();
  }
}

TEST(CudaEmulation, LanesOfAWarpMustReachTheSameInstruction) {
  const Floats data(count);
  expect_in(error_of_block(meet_wrongly<Meeting::votes>, data.data), {"a shuffle", "a ballot", "of its warp"});
  expect_in(error_of_block(meet_wrongly<Meeting::multiplies>, data.data), {"a shuffle", "mma"});
  expect_in(error_of_block(meet_wrongly<Meeting::loads>, data.data), {"a shuffle", "ldmatrix"});
  expect_in(error_of_block(meet_wrongly<Meeting::waits>, data.data), {"a shuffle", "a barrier of its block"});
  expect_in(error_of_block(meet_wrongly<Meeting::leaves>, data.data), {"a shuffle", "ended"});
}

__global__ void leave_before_the_barrier(float* data) {
  if (threadIdx.x >= 32) return;
  __syncthreads();
  data[threadIdx.x] = 1;
}

TEST(CudaEmulation, DetectsAThreadThatExitsBeforeABarrier) {
  const Floats data(count);
  expect_in(error_of_block(leave_before_the_barrier, data.data), {"ended", "barrier"});
  EXPECT_EQ(error_of_block(reverse_in_shared<true>, data.data), "");  // the failed launch does not affect the next one
}

// ---- Bounds

__global__ void read_at(const float* data, std::int64_t index, float* out) {
  if (threadIdx.x == 0) out[0] = data[index];
}
__global__ void write_at(float* data, std::int64_t index) {
  if (threadIdx.x == 0) data[index] = 1;
}

TEST(CudaEmulation, DetectsAccessesOutsideAnAllocation) {
  const Floats data(10), out(1);
  EXPECT_EQ(error_of_block(read_at, data.data, 9, out.data), "");
  expect_in(error_of_block(read_at, data.data, 10, out.data), {"reads 4 bytes 0 bytes behind an allocation of 40"});
  expect_in(error_of_block(write_at, data.data, 10), {"writes 4 bytes"});
  EXPECT_NE(error_of_block(read_at, data.data, -1, out.data), "");
  const auto host = std::make_unique<float[]>(4);
  EXPECT_NE(error_of_block(read_at, host.get(), 0, out.data), "");
}

TEST(CudaEmulation, DetectsAccessesOutsideTheTensorsOfAnArena) {
  Ledger ledger;
  Cuda::Arena arena(ledger, 4096);
  const Floats out(1);
  const auto first = arena.allocate<float>(Cuda::Arena::End::low, {16});
  EXPECT_EQ(error_of_block(read_at, first.data(), 15, out.data), "");
  expect_in(error_of_block(read_at, first.data(), 16, out.data), {"which no tensor holds"});
  const auto mark = arena.mark(Cuda::Arena::End::low);
  const auto second = arena.allocate<float>(Cuda::Arena::End::low, {16});
  EXPECT_EQ(error_of_block(read_at, second.data(), 0, out.data), "");
  arena.release(Cuda::Arena::End::low, mark);
  EXPECT_NE(error_of_block(read_at, second.data(), 0, out.data), "");
}

template <bool Read>
__global__ void reach_behind_shared(float* out) {
  if (threadIdx.x > 0) return;
  if (Read)
    out[0] = shared_floats()[256];
  else
    shared_floats()[256] = 1;
}

TEST(CudaEmulation, DetectsAccessesOutsideDynamicSharedMemory) {
  const Floats out(1);
  EXPECT_NE(error_of_block(reach_behind_shared<true>, out.data), "");
  EXPECT_NE(error_of_block(reach_behind_shared<false>, out.data), "");
}

// ---- Alignment

__global__ void load_at(const std::byte* data) {
  if (threadIdx.x == 1) static_cast<void>(load_wide(data));
}
__global__ void store_at(std::byte* data) {
  if (threadIdx.x == 1) store_wide(data, {});
}
__global__ void copy_to_shared(const std::byte* data, int offset) {
  if (threadIdx.x == 1) copy_async(shared_memory() + offset, data, true);
  end_copies();
  wait_for_copies<0>();
}
__global__ void load_matrices_at(int offset) {
  std::uint32_t words[4];
  if (threadIdx.x < 8) shared_floats()[threadIdx.x] = 0;
  __syncthreads();
  load_matrices(words, shared_memory() + offset);
}

TEST(CudaEmulation, DetectsMisalignedWideAccesses) {
  const Floats data(16);
  auto* const bytes = reinterpret_cast<std::byte*>(data.data);
  for (const int offset : {0, 16, 32}) {
    EXPECT_EQ(error_of_block(load_at, bytes + offset), "");
    EXPECT_EQ(error_of_block(store_at, bytes + offset), "");
    EXPECT_EQ(error_of_block(copy_to_shared, bytes + offset, 16), "");
  }
  for (const int offset : {2, 4, 8}) {
    expect_in(error_of_block(load_at, bytes + offset),
              {"thread 1", "a load of 16 bytes: an address is no multiple of 16"});
    expect_in(error_of_block(store_at, bytes + offset), {"a store of 16 bytes: an address is no multiple of 16"});
    expect_in(error_of_block(copy_to_shared, bytes + offset, 0), {"cp.async: an address is no multiple of 16"});
    expect_in(error_of_block(copy_to_shared, bytes, offset), {"cp.async: an address is no multiple of 16"});
    expect_in(error_of_block(load_matrices_at, offset), {"ldmatrix: an address is no multiple of 16"});
  }
  EXPECT_EQ(error_of_block(load_matrices_at, 16), "");
}

// ---- Uninitialised memory

template <bool Write>
__global__ void read_static_shared(float* out) {
  __shared__ float kept[2];
  if (Write || blockIdx.x == 0) {
    if (threadIdx.x == 0) kept[0] = kept[1] = 1;
    __syncthreads();
  }
  if (threadIdx.x == 1) out[blockIdx.x] = kept[1];
}
__global__ void read_dynamic_shared(float* out) {
  if (threadIdx.x == 0) out[blockIdx.x] = shared_floats()[3];
}

TEST(CudaEmulation, DetectsReadsOfUninitialisedSharedMemory) {
  const Floats out(2);
  EXPECT_EQ(error_of(read_static_shared<true>, {.x = 2, .threads = 32}, 0, out.data), "");
  expect_in(error_of(read_static_shared<false>, {.x = 2, .threads = 32}, 0, out.data),
            {"block (1, 0)", "static shared memory", "which no thread of the block has written"});
  expect_in(error_of_block(read_dynamic_shared, out.data), {"dynamic shared memory", "has written"});
}

// ---- Order

unsigned noted[64], notes = 0;  // in host memory
__attribute__((noinline, no_sanitize("thread"))) void note(unsigned thread) {
  if (thread % 32 == 0) noted[notes++] = thread / 32;
}
__global__ void note_warps() {
  note(threadIdx.x);
  __syncthreads();
  note(threadIdx.x);
}

TEST(CudaEmulation, ASeedDeterminesTheOrderOfWarps) {
  const auto order = [](std::uint64_t seed) {
    emulation::seed_order(seed);
    notes = 0;
    EXPECT_EQ(error_of(note_warps, {.threads = 8 * 32}, 0), "");
    emulation::seed_order(0);
    return std::vector<unsigned>(noted, noted + notes);
  };
  std::set<std::vector<unsigned>> orders;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(order(seed), order(seed));
    EXPECT_EQ(order(seed).size(), 16u);
    orders.insert(order(seed));
  }
  EXPECT_GT(orders.size(), 6u);
}

}  // namespace
}  // namespace fsdp::device::cuda
