// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tracks the last readers and writers of each byte of a memory, and detects races in any execution order.
///
/// Two threads race for a byte that one of them writes unless a barrier of their block lies between the accesses or,
/// in one warp, a barrier of the warp. Shuffles, votes, ldmatrix and mma order no memory (CUDA C++ Programming Guide,
/// "Warp Shuffle Functions"). Threads of two blocks of a launch race whatever lies between.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "block.hpp"

namespace fsdp::device::cuda::emulation {

enum class Access : std::uint8_t { read, write, copy_begins, copy_ends };

class Races {
 public:
  /// Shared memory of a block, which each block must write before it reads, or memory of the device.
  enum class Scope : std::uint8_t { block, grid };
  /// `name` appears in messages.
  Races(std::string name, Scope scope, Range range);

  /// Records an access of the current thread, and fails if it is a race. The access must be within the range.
  void access(std::uintptr_t address, std::size_t bytes, Access access);

 private:
  /// Thread and time of the last access: the interval of its Moment and the number of warp barriers.
  struct Last {
    std::uint32_t interval = 0;  ///< 0 if there was none
    std::uint16_t warp_barriers = 0;
    std::uint16_t thread = 0;
  };
  /// Recorded accesses of one byte. Readers are those since the last barrier or, of several blocks, in this launch.
  struct Cell {
    Last write, read;
    enum class Readers : std::uint8_t { one, of_a_warp, of_the_block, of_the_grid } readers = Readers::one;
    bool is_target = false;  ///< whether the last write is a copy in flight
  };
  /// Cells of 4 bytes. Most accesses are at least as wide, and one cell then represents all four.
  struct Line {
    Cell whole;
    bool split = false;
    std::unique_ptr<std::array<Cell, 4>> bytes;
  };
  using Page = std::array<Line, 256>;

  static bool in_order(const Last& last, const Moment& now);
  static bool read_in_order(const Cell& cell, const Moment& now);
  static bool on_its_way(const Cell& cell, Access access, const Moment& now);
  static bool is_known(const Cell& cell, const Moment& now);
  static void enter_read(Cell& cell, const Moment& now);
  bool is_fine(const Cell& cell, Access access, const Moment& now) const;
  std::string problem(const Cell& cell, Access access, const Moment& now) const;
  void apply(Cell& cell, Access access, const Moment& now, std::uintptr_t address) const;
  Line& line_at(std::uintptr_t address);

  std::string name_;
  Scope scope_;
  std::uintptr_t begin_, first_line_;
  std::vector<std::unique_ptr<Page>> pages_;  ///< allocated at the first access
};

}  // namespace fsdp::device::cuda::emulation
