// SPDX-License-Identifier: Apache-2.0
/// @file
/// Warp instructions, as PTX specifies them.
#include <cstdint>
#include <cstring>

#include "accesses.hpp"
#include "block.hpp"
#include "emulation.hpp"
#include "src/fsdp/device/cuda/arithmetic.cuh"

namespace fsdp::device::cuda {
namespace {

using emulation::AllShown;
using emulation::Meeting;
using emulation::Shown;

template <class... T>
Shown show(const T&... values) {
  static_assert((sizeof(T) + ... + 0) <= sizeof(Shown));
  Shown shown{};
  auto* at = reinterpret_cast<std::byte*>(shown.data());
  ((std::memcpy(at, &values, sizeof values), at += sizeof values), ...);
  return shown;
}

unsigned lane() { return emulation::current_thread().x % 32; }

void require_aligned(const void* address, const char* instruction, std::size_t bytes = 16) {
  emulation::require_of_thread(reinterpret_cast<std::uintptr_t>(address) % bytes == 0, instruction,
                               ": an address is no multiple of ", bytes, " bytes");
}

const AllShown& show_row(Meeting kind, const void* row) {
  require_aligned(row, "ldmatrix");
  emulation::reads(row, 16);
  return emulation::meet(kind, show(row));
}
std::uint16_t element(const Shown& shown, unsigned index) {
  const std::uint16_t* row = nullptr;
  std::memcpy(&row, shown.data(), sizeof row);
  return row[index];
}
std::uint32_t pair(std::uint16_t low, std::uint16_t high) { return std::uint32_t{low} | std::uint32_t{high} << 16; }

/// A lane's values for mma; d also receives the result.
struct Fragments {
  float d[4];
  std::uint32_t a[4], b[2];
};
static_assert(sizeof(Fragments) == sizeof(Shown));

/// d += a b for the whole warp, each sum in the order of k. Lane l has the elements (l / 4, 2 (l % 4) + {0, 1}) of d
/// and those 8 rows below; the same elements of a in both halves of k; and of b the column l / 4.
template <class T>
void multiply_warp(AllShown& shown) {
  Fragments fragments[32];
  std::memcpy(fragments, shown.data(), sizeof fragments);
  const auto half = [](std::uint32_t word, unsigned k) {
    return widen(T::from_bits(static_cast<std::uint16_t>(word >> 16 * (k % 2))));
  };
  float a[16][16], b[16][8], d[16][8];
  for (unsigned l = 0; l < 32; ++l)
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned row = l / 4, k = l % 4 * 2 + i;
      for (unsigned part = 0; part < 4; ++part) a[row + part % 2 * 8][k + part / 2 * 8] = half(fragments[l].a[part], i);
      for (unsigned part = 0; part < 2; ++part) {
        b[k + part * 8][row] = half(fragments[l].b[part], i);
        d[row + part * 8][k] = fragments[l].d[part * 2 + i];
      }
    }
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
  for (unsigned l = 0; l < 32; ++l)
    for (unsigned i = 0; i < 4; ++i) fragments[l].d[i] = d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
  std::memcpy(shown.data(), fragments, sizeof fragments);
}

/// Writes the data of a cp.async when it arrives.
void finish(const emulation::Copy& copy) {
  if (copy.from != nullptr)
    std::memcpy(copy.to, copy.from, copy.bytes);
  else
    std::memset(copy.to, 0, copy.bytes);
}

void start_copy(void* to, const void* from, bool exists, std::size_t bytes) {
  require_aligned(to, "cp.async", bytes);
  require_aligned(from, "cp.async", bytes);
  if (exists) emulation::reads(from, bytes);
  emulation::copy_begins(to, bytes);
  const emulation::Copy copy = {.to = to, .from = exists ? from : nullptr, .bytes = bytes};
  if (emulation::copies_arrive_at_once()) finish(copy);
  emulation::add_copy(copy);
}

}  // namespace

std::uint64_t emulation::exchanged(std::uint64_t bits, int mask) {
  const AllShown& all = meet(Meeting::shuffle, show(bits));
  return all[lane() ^ static_cast<unsigned>(mask)][0];
}

std::uint32_t ballot(bool yes) {
  const AllShown& all = meet(Meeting::ballot, show(std::uint64_t{yes}));
  std::uint32_t votes = 0;
  for (unsigned i = 0; i < 32; ++i) votes |= static_cast<std::uint32_t>(all[i][0]) << i;
  return votes;
}

Wide load_wide(const void* from) {
  require_aligned(from, "a load of 16 bytes");
  emulation::reads(from, 16);
  Wide wide;
  std::memcpy(&wide, from, sizeof wide);
  return wide;
}
void store_wide(void* to, const Wide& wide) {
  require_aligned(to, "a store of 16 bytes");
  emulation::writes(to, 16);
  std::memcpy(to, &wide, sizeof wide);
}

void load_matrices(std::uint32_t (&to)[4], const void* row) {
  const AllShown& rows = show_row(Meeting::ldmatrix, row);
  const unsigned own = lane();
  for (unsigned m = 0; m < 4; ++m) {
    const Shown& shown = rows[m * 8 + own / 4];
    to[m] = pair(element(shown, own % 4 * 2), element(shown, own % 4 * 2 + 1));
  }
}

void load_transposed(std::uint32_t (&to)[4], const void* row) {
  const AllShown& rows = show_row(Meeting::ldmatrix_transposed, row);
  const unsigned own = lane();
  for (unsigned m = 0; m < 4; ++m)
    to[m] = pair(element(rows[m * 8 + own % 4 * 2], own / 4), element(rows[m * 8 + own % 4 * 2 + 1], own / 4));
}

template <class T>
void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const AllShown& all = emulation::meet(Meeting::mma, show(d, a, b0, b1), multiply_warp<T>);
  std::memcpy(d, all[lane()].data(), sizeof d);
}
template void multiply_add<bf16>(float (&)[4], const std::uint32_t (&)[4], std::uint32_t, std::uint32_t);
template void multiply_add<f16>(float (&)[4], const std::uint32_t (&)[4], std::uint32_t, std::uint32_t);

void copy_async(void* to, const void* from, bool exists) { start_copy(to, from, exists, 16); }
void copy_word_async(void* to, const void* from, bool exists) { start_copy(to, from, exists, 4); }

void end_copies(emulation::Site site) {
  if (!emulation::is_left_out(site)) emulation::end_group();
}

void wait_for_groups(int under_way, emulation::Site site) {
  if (emulation::is_left_out(site)) return;
  for (emulation::Copy copy; emulation::take_copy(under_way, copy);) {
    if (!emulation::copies_arrive_at_once()) finish(copy);
    emulation::copy_ends(copy.to, copy.bytes);
  }
}

}  // namespace fsdp::device::cuda
