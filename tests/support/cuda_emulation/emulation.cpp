// SPDX-License-Identifier: Apache-2.0
/// @file
/// The fibers that are a block's threads, and the order in which they run.
#include "emulation.hpp"

#undef _FORTIFY_SOURCE  // its longjmp supports only one stack

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <string_view>

#include "accesses.hpp"
#include "block.hpp"

namespace fsdp::device::cuda::emulation {

Range stack, dynamic_shared, parameters, closure;

namespace {

constexpr std::size_t stack_bytes = 256 * 1024;

/// The splitmix64 generator.
struct Random {
  std::uint64_t state = 0;
  std::uint64_t next() {
    std::uint64_t bits = state += 0x9e3779b97f4a7c15;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
    return bits ^ bits >> 31;
  }
  unsigned below(unsigned count) { return static_cast<unsigned>((next() >> 32) * count >> 32); }
};

struct Fiber {
  ucontext_t context;  ///< entry of the fiber
  jmp_buf place;       ///< where it resumes
  bool started = false;
  std::unique_ptr<char[]> stack{new char[stack_bytes]};
  bool done = false;
  const std::uint64_t* awaited = nullptr;  ///< waits until this is no longer `generation`; null if not waiting
  std::uint64_t generation = 0;
  std::uint64_t instructions = 0;  ///< warp instructions so far
  std::uint16_t warp_barriers = 0;
  std::deque<Copy> copies;
  std::uint64_t groups = 0;  ///< groups of copies committed so far
};

struct Warp {
  unsigned arrived = 0;  ///< lanes that wait in an instruction of `kind`
  Meeting kind = Meeting::shuffle;
  std::uint64_t generation = 0;  ///< completed instructions
  unsigned waiting = 0;          ///< lanes at a barrier of the block
  unsigned ended = 0;
  std::array<AllShown, 2> shown = {};  ///< values of the last two instructions, as a lane may be one ahead
};

/// The running block.
struct Block {
  Index index, size, grid;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  unsigned arrived = 0;  ///< threads at a barrier
  unsigned ended = 0;
  std::uint64_t generation = 0;                                         ///< completed barriers
  std::uint32_t interval = 0, first_interval = 0, first_of_launch = 0;  ///< see Moment
  std::vector<std::byte> memory;
  std::size_t current = 0;
  Random random;
  bool backwards = false, copies_at_once = false;
  unsigned first_lane = 0;
  std::string error;
  ucontext_t scheduler_context;
  jmp_buf scheduler;
  const std::function<void()>* body = nullptr;
};
Block block;

Fiber& fiber() { return *block.fibers[block.current]; }
Warp& warp_of_thread() { return block.warps[block.current / 32]; }

constexpr std::string_view names[] = {"a shuffle",      "a ballot", "a barrier of its warp", "ldmatrix",
                                      "ldmatrix.trans", "mma",      "a barrier of its block"};
std::string_view name(Meeting kind) { return names[static_cast<std::size_t>(kind)]; }

/// Yields to other threads until `counter` changes.
void wait_for(const std::uint64_t& counter) {
  Fiber& mine = fiber();
  mine.awaited = &counter;
  mine.generation = counter;
  if (_setjmp(mine.place) == 0) _longjmp(block.scheduler, 1);
}

/// The body of a fiber: runs the kernel for one block after another.
void run_fiber() {
  for (;;) {
    (*block.body)();
    Warp& own = warp_of_thread();
    require_of_thread(own.arrived == 0, "has ended, and a lane of its warp is in ", name(own.kind));
    require_of_thread(block.arrived == 0, "has ended, and others of its block are at a barrier");
    ++own.ended;
    ++block.ended;
    fiber().done = true;
    if (_setjmp(fiber().place) == 0) _longjmp(block.scheduler, 1);
  }
}

/// Runs a fiber until it waits or ends. Only its first start switches contexts, which takes a system call for the
/// signal mask; later it resumes by longjmp.
void resume(Fiber& next) {
  stack = {reinterpret_cast<std::uintptr_t>(next.stack.get()), stack_bytes};
  if (_setjmp(block.scheduler) != 0) return;
  if (next.started) _longjmp(next.place, 1);
  next.started = true;
  getcontext(&next.context);
  next.context.uc_stack = {.ss_sp = next.stack.get(), .ss_flags = 0, .ss_size = stack_bytes};
  next.context.uc_link = nullptr;
  makecontext(&next.context, run_fiber, 0);
  swapcontext(&block.scheduler_context, &next.context);
}

/// Runs the threads of a warp in turn while any can continue, up to a limit. Returns whether any could.
bool run_warp(unsigned warp) {
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (unsigned i = 0; i < 32; ++i) {
      block.current = warp * 32 + (block.first_lane + (block.backwards ? 32 - i : i)) % 32;
      Fiber& next = fiber();
      if (next.done || (next.awaited != nullptr && *next.awaited == next.generation)) continue;
      next.awaited = nullptr;
      moved = any = true;
      resume(next);
      if (!block.error.empty()) return any;
    }
    if (block.random.below(8) == 0) break;
  }
  return any;
}

void start_block(unsigned threads) {
  while (block.fibers.size() < threads) block.fibers.push_back(std::make_unique<Fiber>());
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& made = *block.fibers[i];
    made.done = false;
    made.awaited = nullptr;
    made.copies.clear();
    made.instructions = made.groups = 0;
    made.warp_barriers = 0;
  }
  block.warps.resize(threads / 32);
  for (Warp& each : block.warps) each.arrived = each.waiting = each.ended = 0;
  block.arrived = block.ended = 0;
  block.first_interval = ++block.interval;
  block.backwards = block.random.below(2) == 1;
  block.copies_at_once = block.random.below(2) == 1;
  block.first_lane = block.random.below(32);
}

void run_block(unsigned threads) {
  start_block(threads);
  std::vector<unsigned> order(threads / 32);
  std::iota(order.begin(), order.end(), 0u);
  while (block.ended < threads) {
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[block.random.below(static_cast<unsigned>(i))]);
    bool moved = false;
    for (const unsigned warp : order) {
      moved = run_warp(warp) || moved;
      if (!block.error.empty()) return;
    }
    if (!moved) block.error = "threads of the block wait for each other forever";
  }
}

void start_random(std::string_view kernel) {
  std::uint64_t bits = seed() ^ (std::uint64_t{block.index.y} << 32 | block.index.x);
  for (const char letter : kernel) bits = bits * 31 + static_cast<unsigned char>(letter);
  block.random = {bits};
}

}  // namespace

Index current_thread() { return {.x = static_cast<std::uint32_t>(block.current)}; }
Index block_index() { return block.index; }
Index block_size() { return block.size; }
Index grid_size() { return block.grid; }
std::byte* dynamic_memory() { return reinterpret_cast<std::byte*>(dynamic_shared.begin); }

Moment now() {
  return {block.interval, block.first_interval, block.first_of_launch, fiber().warp_barriers,
          static_cast<std::uint16_t>(block.current)};
}

void fail(const std::string& text) {
  block.error = message("thread ", block.current, " ", text);
  _longjmp(block.scheduler, 1);
}

void wait_for_block(Site site) {
  if (is_left_out(site)) return;
  Warp& own = warp_of_thread();
  require_of_thread(own.arrived == 0, "is at a barrier of its block, and a lane of its warp is in ", name(own.kind));
  require_of_thread(block.ended == 0, "is at a barrier of its block, and another thread has ended");
  ++own.waiting;
  if (++block.arrived < block.size.x) return wait_for(block.generation);
  block.arrived = 0;
  for (Warp& each : block.warps) each.waiting = 0;
  ++block.generation;
  ++block.interval;
}

AllShown& meet(Meeting kind, const Shown& mine, void (*combine)(AllShown&)) {
  Warp& own = warp_of_thread();
  if (own.arrived == 0) own.kind = kind;
  require_of_thread(own.kind == kind, "is in ", name(kind), ", and another lane of its warp is in ", name(own.kind));
  require_of_thread(own.waiting == 0, "is in ", name(kind), ", and another lane of its warp is in ",
                    name(Meeting::block_barrier));
  require_of_thread(own.ended == 0, "is in ", name(kind), ", and another lane of its warp has ended");
  AllShown& shown = own.shown[fiber().instructions++ % 2];
  shown[block.current % 32] = mine;
  if (++own.arrived < 32) {
    wait_for(own.generation);
  } else {
    own.arrived = 0;
    ++own.generation;
    if (combine != nullptr) combine(shown);
  }
  return shown;
}

void wait_for_warp() {
  meet(Meeting::warp_barrier, {});
  ++fiber().warp_barriers;
}

bool copies_arrive_at_once() { return block.copies_at_once; }
void add_copy(const Copy& copy) {
  fiber().copies.push_back(copy);
  fiber().copies.back().group = fiber().groups;
}
void end_group() { ++fiber().groups; }
bool take_copy(int groups, Copy& copy) {
  Fiber& mine = fiber();
  if (mine.copies.empty() || mine.copies.front().group + static_cast<std::uint64_t>(groups) >= mine.groups)
    return false;
  copy = mine.copies.front();
  mine.copies.pop_front();
  return true;
}

void run(const char* kernel, const Grid& grid, std::size_t shared, std::span<const std::byte> call,
         const std::function<void()>& body) {
  require(grid.x >= 1 && grid.x <= 0x7fffffff && grid.y >= 1 && grid.y <= 65535 && grid.threads >= 1 &&
              grid.threads <= 1024 && grid.threads % 32 == 0 && shared <= most_shared,
          kernel, ": a launch of ", grid.x, " x ", grid.y, " blocks of ", grid.threads, " threads with ", shared,
          " bytes is beyond CUDA's limits");
  block.memory.resize(most_shared + 16);
  const auto memory = reinterpret_cast<std::uintptr_t>(block.memory.data());
  dynamic_shared = {(memory + 15) / 16 * 16, shared};
  parameters = {reinterpret_cast<std::uintptr_t>(call.data()), call.size()};
  closure = {reinterpret_cast<std::uintptr_t>(&body), sizeof body};
  block.body = &body;
  block.size = {.x = grid.threads, .y = 1};
  block.grid = {.x = std::min(grid.x, most_blocks()), .y = grid.y};
  block.first_of_launch = block.interval + 1;
  const Checks checks;
  for (block.index.y = 0; block.index.y < block.grid.y; ++block.index.y)
    for (block.index.x = 0; block.index.x < block.grid.x; ++block.index.x) {
      std::memset(dynamic_memory(), 0xff, shared);  // memory that is never written reads as NaN
      start_random(kernel);
      run_block(grid.threads);
      if (block.error.empty()) continue;
      block.fibers.clear();  // they are suspended in the middle of the kernel
      throw Error(message(kernel, ", block (", block.index.x, ", ", block.index.y,
                          "): ", std::exchange(block.error, {}), " (TESSERA_EMULATION_SEED=", seed(), ")"));
    }
}

}  // namespace fsdp::device::cuda::emulation
