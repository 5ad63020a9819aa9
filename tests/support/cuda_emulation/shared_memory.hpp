// SPDX-License-Identifier: Apache-2.0
/// @file
/// Who has read and written each byte of shared memory since the last barrier.
///
/// Two threads race for a byte that one of them writes unless a barrier of the block lies between their accesses, or,
/// in one warp, a barrier of the warp. Shuffles, votes, ldmatrix and mma order no memory (CUDA C++ Programming Guide,
/// "Warp Shuffle Functions").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "block.hpp"

namespace fsdp::device::cuda::emulation {

enum class Access : std::uint8_t { read, write, copy_begins, copy_ends };

class SharedMemory {
 public:
  /// `name` is for people.
  SharedMemory(std::string_view name, Range range);

  /// By the current thread, which fails where it races, or reads what nobody in its block has written.
  void access(std::uintptr_t address, std::size_t bytes, Access access);

 private:
  /// Who, and when: the interval of Moment, and how many barriers of the warp there had been.
  struct Last {
    std::uint32_t interval = 0;  ///< 0: never
    std::uint32_t warp_barriers = 0;
    std::uint16_t thread = 0;
  };
  /// What is known of one byte.
  struct Cell {
    Last write, read;
    enum class Readers : std::uint8_t { one, of_a_warp, of_the_block } readers = Readers::one;  ///< since that barrier
    bool on_its_way = false;  ///< by a copy of the writer's
  };
  /// 16 bytes: most accesses are as wide, and then one cell stands for all.
  struct Line {
    Cell whole;
    std::unique_ptr<std::array<Cell, 16>> bytes;
    bool split = false;
  };

  static bool in_order(const Last& last, const Moment& now);
  static std::string problem(const Cell& cell, Access access, const Moment& now);
  static void enter_read(Cell& cell, const Moment& now);
  void apply(Cell& cell, Access access, const Moment& now, std::uintptr_t address) const;

  std::string_view name_;
  Range range_;
  std::vector<Line> lines_;
};

}  // namespace fsdp::device::cuda::emulation
