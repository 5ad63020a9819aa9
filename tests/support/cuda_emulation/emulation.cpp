// SPDX-License-Identifier: Apache-2.0
/// @file
/// The fibers that are a block's threads.
#include "emulation.hpp"

#undef _FORTIFY_SOURCE  // whose longjmp knows one stack

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <deque>
#include <memory>

#include <fsdp/core/error.hpp>

namespace fsdp::device::cuda {
namespace emulation {

Index block_index, block_size, grid_size;

namespace {

constexpr std::size_t stack_bytes = 256 * 1024;
constexpr std::size_t most_shared = 227 * 1024;  // of a block on sm_90

struct Barrier {
  unsigned arrived = 0;
  std::uint64_t generation = 0;
};

struct Copy {
  void* to;
  const void* from;
  bool exists;
  std::uint64_t group;
  std::size_t bytes;
};

struct Fiber {
  ucontext_t context;  ///< where it starts
  jmp_buf place;       ///< where it goes on
  bool started = false;
  std::unique_ptr<char[]> stack{new char[stack_bytes]};
  bool done = false;
  const Barrier* awaited = nullptr;  ///< with `generation`: goes on once the barrier's is another
  std::uint64_t generation = 0;
  std::uint64_t instructions = 0;  ///< shown so far
  std::deque<Copy> copies;
  std::uint64_t groups = 0;  ///< of copies, ended so far
};

struct Warp {
  Barrier barrier;
  std::array<std::array<Shown, 32>, 2> shown;  ///< of the last two instructions: a lane may be one ahead
};

/// The block that runs.
struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  Barrier barrier;
  std::unique_ptr<std::byte[]> memory;
  std::byte* aligned_memory = nullptr;
  std::size_t current = 0;
  bool odd = false;  ///< threads run backwards, and copies arrive at once
  ucontext_t scheduler_context;
  jmp_buf scheduler;
  const std::function<void()>* body = nullptr;
};
Block block;

Fiber& fiber() { return *block.fibers[block.current]; }

void arrive(Barrier& barrier, unsigned count) {
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    ++barrier.generation;
    return;
  }
  Fiber& mine = fiber();
  mine.awaited = &barrier;
  mine.generation = barrier.generation;
  if (_setjmp(mine.place) == 0) _longjmp(block.scheduler, 1);
}

void run_fiber() {
  (*block.body)();
  fiber().done = true;
  _longjmp(block.scheduler, 1);
}

/// Runs a fiber until it waits or ends. Only its start is a switch of contexts, which asks the kernel about signals;
/// from then on jumps do.
void resume(Fiber& next) {
  if (_setjmp(block.scheduler) != 0) return;
  if (next.started) _longjmp(next.place, 1);
  next.started = true;
  swapcontext(&block.scheduler_context, &next.context);
}

void start(Fiber& made) {
  getcontext(&made.context);
  made.context.uc_stack = {.ss_sp = made.stack.get(), .ss_flags = 0, .ss_size = stack_bytes};
  made.context.uc_link = nullptr;
  made.started = false;
  made.done = false;
  made.awaited = nullptr;
  made.copies.clear();
  makecontext(&made.context, run_fiber, 0);
}

/// Runs the threads [begin, begin + 32) in turn for as long as one of them can go on: until all are done or wait for
/// the block. Returns how many of them ended; -1 where none could go on.
int run_warp(unsigned begin) {
  int done = -1;
  for (bool moved = true; moved;) {
    moved = false;
    for (unsigned lane = 0; lane < 32; ++lane) {
      block.current = begin + (block.odd ? 31 - lane : lane);
      Fiber& next = fiber();
      if (next.done || (next.awaited != nullptr && next.awaited->generation == next.generation)) continue;
      next.awaited = nullptr;
      moved = true;
      done = std::max(done, 0);
      resume(next);
      if (next.done) ++done;
    }
  }
  return done;
}

void run_block(const char* kernel, unsigned threads) {
  while (block.fibers.size() < threads) block.fibers.push_back(std::make_unique<Fiber>());
  block.warps.assign(threads / 32, {});
  block.barrier = {};
  for (unsigned i = 0; i < threads; ++i) start(*block.fibers[i]);
  for (unsigned done = 0; done < threads;) {
    bool moved = false;
    for (unsigned begin = 0; begin < threads; begin += 32) {
      const int ended = run_warp(block.odd ? threads - 32 - begin : begin);
      moved = moved || ended >= 0;
      done += static_cast<unsigned>(std::max(ended, 0));
    }
    require(moved, kernel, ": threads of a block wait for each other forever");
  }
}

}  // namespace

Index current_thread() { return {.x = static_cast<std::uint32_t>(block.current)}; }
std::byte* dynamic_memory() { return block.aligned_memory; }
void wait_for_block() { arrive(block.barrier, block_size.x); }

const std::array<Shown, 32>& show(const Shown& mine) {
  Warp& warp = block.warps[block.current / 32];
  auto& shown = warp.shown[fiber().instructions++ % 2];
  shown[block.current % 32] = mine;
  arrive(warp.barrier, 32);
  return shown;
}

void run(const char* kernel, const Grid& grid, std::size_t shared, const std::function<void()>& body) {
  require(grid.x >= 1 && grid.x <= 0x7fffffff && grid.y >= 1 && grid.y <= 65535 && grid.threads >= 1 &&
              grid.threads <= 1024 && grid.threads % 32 == 0 && shared <= most_shared,
          kernel, ": a launch of ", grid.x, " x ", grid.y, " blocks of ", grid.threads, " threads with ", shared,
          " bytes is beyond CUDA's limits");
  block.memory.reset(new std::byte[shared + 16]);
  block.aligned_memory = block.memory.get() + (16 - reinterpret_cast<std::uintptr_t>(block.memory.get()) % 16) % 16;
  block.body = &body;
  block_size = {.x = grid.threads, .y = 1};
  grid_size = {.x = grid.x, .y = grid.y};
  for (block_index.y = 0; block_index.y < grid.y; ++block_index.y)
    for (block_index.x = 0; block_index.x < grid.x; ++block_index.x) {
      std::memset(block.aligned_memory, 0xff, shared);  // NaN, which what is never written shows as
      block.odd = (block_index.x + block_index.y) % 2 == 1;
      run_block(kernel, grid.threads);
    }
}

}  // namespace emulation

namespace {

using emulation::Shown;

void require_aligned(const void* address, const char* instruction) {
  require(reinterpret_cast<std::uintptr_t>(address) % 16 == 0, instruction, ": an address is no multiple of 16 bytes");
}

std::uint32_t pair(std::uint16_t low, std::uint16_t high) { return std::uint32_t{low} | std::uint32_t{high} << 16; }

const std::array<Shown, 32>& show_row(const void* row) {
  require_aligned(row, "ldmatrix");
  return emulation::show(emulation::shown(row));
}
std::uint16_t element(const Shown& shown, unsigned index) {
  const std::uint16_t* row = nullptr;
  std::memcpy(&row, shown.data(), sizeof row);
  return row[index];
}

}  // namespace

Wide load_wide(const void* from) {
  require_aligned(from, "a load of 16 bytes");
  Wide wide;
  std::memcpy(&wide, from, sizeof wide);
  return wide;
}
void store_wide(void* to, const Wide& wide) {
  require_aligned(to, "a store of 16 bytes");
  std::memcpy(to, &wide, sizeof wide);
}

void load_matrices(std::uint32_t (&to)[4], const void* row) {
  const auto& rows = show_row(row);
  const unsigned lane = emulation::current_thread().x % 32;
  for (unsigned m = 0; m < 4; ++m) {
    const Shown& own = rows[m * 8 + lane / 4];
    to[m] = pair(element(own, lane % 4 * 2), element(own, lane % 4 * 2 + 1));
  }
}

void load_transposed(std::uint32_t (&to)[4], const void* row) {
  const auto& rows = show_row(row);
  const unsigned lane = emulation::current_thread().x % 32;
  for (unsigned m = 0; m < 4; ++m)
    to[m] = pair(element(rows[m * 8 + lane % 4 * 2], lane / 4), element(rows[m * 8 + lane % 4 * 2 + 1], lane / 4));
}

namespace {

/// The copy of cp.async, at the time it arrives.
void finish(const emulation::Copy& copy) {
  if (copy.exists)
    std::memcpy(copy.to, copy.from, copy.bytes);
  else
    std::memset(copy.to, 0, copy.bytes);
}

void copy(void* to, const void* from, bool exists, std::size_t bytes) {
  emulation::Fiber& mine = emulation::fiber();
  const emulation::Copy copy = {to, from, exists, mine.groups, bytes};
  if (emulation::block.odd)
    finish(copy);
  else
    mine.copies.push_back(copy);
}

}  // namespace

void copy_async(void* to, const void* from, bool exists) {
  require_aligned(to, "cp.async");
  require_aligned(from, "cp.async");
  copy(to, from, exists, 16);
}
void copy_word_async(void* to, const void* from, bool exists) { copy(to, from, exists, 4); }

void end_copies() { ++emulation::fiber().groups; }

void wait_for_groups(int under_way) {
  emulation::Fiber& mine = emulation::fiber();
  while (!mine.copies.empty() && mine.copies.front().group + static_cast<std::uint64_t>(under_way) < mine.groups) {
    finish(mine.copies.front());
    mine.copies.pop_front();
  }
}

}  // namespace fsdp::device::cuda
