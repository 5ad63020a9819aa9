// SPDX-License-Identifier: Apache-2.0
#include "shared_memory.hpp"

#include <algorithm>

#include <fsdp/core/error.hpp>

namespace fsdp::device::cuda::emulation {
namespace {

bool same_warp(std::uint16_t a, std::uint16_t b) { return a / 32 == b / 32; }

constexpr std::string_view names[] = {"reads", "writes", "begins to copy to", "ends to copy to"};

}  // namespace

SharedMemory::SharedMemory(std::string_view name, Range range)
    : name_(name),
      range_{range.begin / 16 * 16, (range.begin % 16 + range.bytes + 15) / 16 * 16},
      lines_(range_.bytes / 16) {}

/// Whether a barrier, or the order of a thread, lies between the access and now.
bool SharedMemory::in_order(const Last& last, const Moment& now) {
  return last.interval != now.interval || last.thread == now.thread ||
         (same_warp(last.thread, now.thread) && last.warp_barriers < now.warp_barriers);
}

/// Why the access may not be; empty where it may.
std::string SharedMemory::problem(const Cell& cell, Access access, const Moment& now) {
  if (cell.on_its_way && access != Access::copy_ends)
    return message("which thread ", cell.write.thread, " copies to and has not waited for");
  if (!in_order(cell.write, now)) return message("which thread ", cell.write.thread, " writes, and no barrier between");
  if (access == Access::read)
    return cell.write.interval < now.begin ? "which no thread of the block has written" : std::string();
  const bool latest = cell.read.interval == now.interval;
  if (latest && cell.readers == Cell::Readers::of_the_block)
    return "which threads of several warps read, and no barrier between";
  const bool of_others = latest && cell.readers == Cell::Readers::of_a_warp &&
                         cell.read.warp_barriers == now.warp_barriers;
  if (of_others || !in_order(cell.read, now))
    return message("which thread ", cell.read.thread, " reads, and no barrier between");
  return {};
}

void SharedMemory::enter_read(Cell& cell, const Moment& now) {
  const bool first = cell.read.interval != now.interval;
  if (!first && cell.readers == Cell::Readers::of_the_block) return;
  if (!first && !same_warp(cell.read.thread, now.thread)) {
    cell.readers = Cell::Readers::of_the_block;
    return;
  }
  // Before a barrier of this warp, what it read is in order with all that it does now.
  if (first || cell.read.warp_barriers < now.warp_barriers)
    cell.readers = Cell::Readers::one;
  else if (cell.read.thread != now.thread)
    cell.readers = Cell::Readers::of_a_warp;
  cell.read = {now.interval, now.warp_barriers, now.thread};
}

void SharedMemory::apply(Cell& cell, Access access, const Moment& now, std::uintptr_t address) const {
  if (const std::string text = problem(cell, access, now); !text.empty())
    fail(message(names[static_cast<std::size_t>(access)], " byte ", address - range_.begin, " of ", name_, ", ", text));
  if (access == Access::read) return enter_read(cell, now);
  cell.write = {now.interval, now.warp_barriers, now.thread};
  cell.on_its_way = access == Access::copy_begins;
}

void SharedMemory::access(std::uintptr_t address, std::size_t bytes, Access access) {
  const Moment moment = now();
  for (std::uintptr_t end = address + bytes; address < end;) {
    const std::uintptr_t begin = address;
    const std::size_t first = begin % 16, last = std::min<std::size_t>(16, first + (end - begin));
    address += last - first;
    Line& line = lines_[(begin - range_.begin) / 16];
    const bool all = last - first == 16;
    if (all && !line.split) {
      apply(line.whole, access, moment, begin);
      continue;
    }
    if (!line.split) {
      if (!line.bytes) line.bytes = std::make_unique<std::array<Cell, 16>>();
      line.bytes->fill(line.whole);
      line.split = true;
    }
    for (std::size_t i = first; i < last; ++i) apply((*line.bytes)[i], access, moment, begin - first + i);
    if (!all || access == Access::read) continue;
    line.whole = (*line.bytes)[0];  // what was known of the bytes is in order with this write
    line.split = false;
  }
}

}  // namespace fsdp::device::cuda::emulation
