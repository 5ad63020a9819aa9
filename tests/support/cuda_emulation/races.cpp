// SPDX-License-Identifier: Apache-2.0
#include "races.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::device::cuda::emulation {
namespace {

constexpr std::uintptr_t line_bytes = 4;

bool same_warp(std::uint16_t a, std::uint16_t b) { return a / 32 == b / 32; }

constexpr std::string_view names[] = {"reads", "writes", "begins to copy to", "ends to copy to"};

}  // namespace

Races::Races(std::string name, Scope scope, Range range)
    : name_(std::move(name)),
      scope_(scope),
      begin_(range.begin),
      first_line_(range.begin / line_bytes),
      pages_((range.begin + range.bytes) / line_bytes / std::tuple_size_v<Page> -
             first_line_ / std::tuple_size_v<Page> + 1) {
  first_line_ -= first_line_ % std::tuple_size_v<Page>;
}

Races::Line& Races::line_at(std::uintptr_t address) {
  const std::uintptr_t index = address / line_bytes - first_line_;
  auto& page = pages_[index / std::tuple_size_v<Page>];
  if (!page) page = std::make_unique<Page>();
  return (*page)[index % std::tuple_size_v<Page>];
}

/// Whether a barrier, program order or launch order separates the access from now.
bool Races::in_order(const Last& last, const Moment& now) {
  if (last.interval < now.block) return last.interval < now.launch;
  return last.interval != now.interval || last.thread == now.thread ||
         (same_warp(last.thread, now.thread) && last.warp_barriers < now.warp_barriers);
}

bool Races::read_in_order(const Cell& cell, const Moment& now) {
  if (cell.read.interval < now.launch) return true;
  if (cell.readers == Cell::Readers::of_the_grid) return false;
  if (cell.read.interval == now.interval) {
    if (cell.readers == Cell::Readers::of_the_block) return false;
    if (cell.readers == Cell::Readers::of_a_warp && cell.read.warp_barriers == now.warp_barriers) return false;
  }
  return in_order(cell.read, now);
}

/// Whether a copy to the cell is in flight.
bool Races::on_its_way(const Cell& cell, Access access, const Moment& now) {
  return cell.is_target && cell.write.interval >= now.launch && access != Access::copy_ends;
}

bool Races::is_fine(const Cell& cell, Access access, const Moment& now) const {
  if (on_its_way(cell, access, now)) return false;
  if (!in_order(cell.write, now)) return false;
  if (access == Access::read) return scope_ == Scope::grid || cell.write.interval >= now.block;
  return read_in_order(cell, now);
}

/// Describes why an access is not allowed.
std::string Races::problem(const Cell& cell, Access access, const Moment& now) const {
  const auto of = [&](const Last& last, const char* does) {
    return message("which thread ", last.thread, last.interval < now.block ? " of another block " : " ", does,
                   last.interval < now.block ? "" : ", and no barrier between");
  };
  if (on_its_way(cell, access, now))
    return message("which thread ", cell.write.thread, " copies to and has not waited for");
  if (!in_order(cell.write, now)) return of(cell.write, "writes");
  if (access == Access::read) return "which no thread of the block has written";
  if (cell.readers == Cell::Readers::of_the_grid) return "which threads of several blocks read";
  if (cell.readers == Cell::Readers::of_the_block) return "which threads of several warps read, and no barrier between";
  return of(cell.read, "reads");
}

void Races::enter_read(Cell& cell, const Moment& now) {
  using Readers = Cell::Readers;
  const bool in_launch = cell.read.interval >= now.launch;
  if (in_launch && (cell.readers == Readers::of_the_grid || cell.read.interval < now.block)) {
    cell.readers = Readers::of_the_grid;
  } else if (cell.read.interval == now.interval &&
             (cell.readers == Readers::of_the_block || !same_warp(cell.read.thread, now.thread))) {
    cell.readers = Readers::of_the_block;
  } else if (cell.read.interval != now.interval || cell.read.warp_barriers < now.warp_barriers) {
    cell.readers = Readers::one;  // earlier readers, of this warp, are ordered before this access
  } else if (cell.read.thread != now.thread) {
    cell.readers = Readers::of_a_warp;
  }
  cell.read = {now.interval, now.warp_barriers, now.thread};
}

/// Whether this read adds no information to the cell: any access that conflicts with it also conflicts with a recorded
/// one.
bool Races::is_known(const Cell& cell, const Moment& now) {
  if (cell.is_target) return false;
  if (cell.readers == Cell::Readers::of_the_grid) return cell.read.interval >= now.launch;
  return cell.read.interval == now.interval &&
         (cell.readers == Cell::Readers::of_the_block ||
          (cell.read.thread == now.thread && cell.read.warp_barriers == now.warp_barriers));
}

void Races::apply(Cell& cell, Access access, const Moment& now, std::uintptr_t address) const {
  if (access == Access::read && is_known(cell, now)) return;
  if (!is_fine(cell, access, now))
    fail(message(names[static_cast<std::size_t>(access)], " byte ", address - begin_, " of ", name_, ", ",
                 problem(cell, access, now)));
  if (access == Access::read) return enter_read(cell, now);
  cell.write = {now.interval, now.warp_barriers, now.thread};
  cell.is_target = access == Access::copy_begins;
}

void Races::access(std::uintptr_t address, std::size_t bytes, Access access) {
  Moment moment = now();
  if (scope_ == Scope::block) moment.launch = moment.block;  // other blocks have their own shared memory
  for (std::uintptr_t end = address + bytes; address < end;) {
    const std::uintptr_t begin = address;
    const std::size_t first = begin % line_bytes, last = std::min<std::size_t>(line_bytes, first + (end - begin));
    address += last - first;
    Line& line = line_at(begin);
    const bool all = last - first == line_bytes;
    if (all && !line.split) {
      apply(line.whole, access, moment, begin);
      continue;
    }
    if (!line.split) {
      if (!line.bytes) line.bytes = std::make_unique<std::array<Cell, line_bytes>>();
      line.bytes->fill(line.whole);
      line.split = true;
    }
    for (std::size_t i = first; i < last; ++i) apply((*line.bytes)[i], access, moment, begin - first + i);
    if (!all || access == Access::read) continue;
    line.whole = (*line.bytes)[0];  // all recorded accesses to the bytes are ordered before this write
    line.split = false;
  }
}

}  // namespace fsdp::device::cuda::emulation
