// SPDX-License-Identifier: Apache-2.0
/// @file
/// A collective with its element types erased, and the two loops that every CPU backend is made of: copy and ordered
/// sum.
///
/// Backends whose memory the CPU can read are compiled once, on Transfers; comm/backend.hpp is their typed front.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <comm/communicator.hpp>

namespace fsdp::comm {

/// One tensor's part, in elements of Transfer::dtype.
struct ByteSegment {
  std::byte* local = nullptr;
  std::byte* full = nullptr;
  std::span<const std::int64_t> counts;  ///< one per rank

  /// Elements of `full` before `rank`'s piece.
  std::int64_t begin(int rank) const;
  std::int64_t count(int rank) const { return counts[static_cast<std::size_t>(rank)]; }
};

template <class T>
ByteSegment bytes_of(const Segment<T>& segment) {
  return {.local = reinterpret_cast<std::byte*>(segment.local),
          .full = reinterpret_cast<std::byte*>(segment.full),
          .counts = segment.counts};
}

/// What one rank asked for. A reduce or gather_bytes is an all_gather of bytes; a barrier has no segments; a broadcast
/// has one segment, whose `local` is root's and everybody's buffer, of counts[0] bytes.
struct Transfer {
  Op op = Op::barrier;
  DType dtype = DType::u8;  ///< of memory
  DType wire = DType::u8;   ///< contributions to a sum are rounded to it
  Write write = Write::overwrite;
  Contributions contributions = Contributions::kept;
  int root = 0;
  bool values = false;  ///< in host memory, whatever the device
  std::vector<ByteSegment> segments;

  std::int64_t element_bytes() const { return size_of(dtype); }
  bool reduces() const { return op == Op::reduce_scatter || op == Op::all_reduce; }
};

/// What ranks must agree on in a transfer, in so few bytes that each tells it to all, checks or not.
struct Outline {
  Op op = Op::barrier;
  DType dtype = DType::u8;
  std::int64_t segments = 0;

  friend bool operator==(const Outline&, const Outline&) = default;
};
inline Outline outline_of(const Transfer& transfer) {
  return {.op = transfer.op, .dtype = transfer.dtype, .segments = static_cast<std::int64_t>(transfer.segments.size())};
}
/// Throws CollectiveError, with both sides, unless they are the same.
void require_same(int rank, const Outline& mine, int peer, const Outline& theirs);

/// Fills `transfer`, keeping its memory, but for its segments,
void describe(Transfer& transfer, Op op, DType dtype, DType wire, Write write = Write::overwrite);
/// and adds one.
void add_segment(Transfer& transfer, const ByteSegment& segment);
template <class T>
void describe(Transfer& transfer, Op op, std::span<const Segment<T>> segments, DType wire,
              Write write = Write::overwrite) {
  describe(transfer, op, dtype_of<T>(), wire, write);
  for (const Segment<T>& segment : segments) add_segment(transfer, bytes_of(segment));
}

/// memcpy, by all OpenMP threads of the caller where it has several.
void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes);

/// One rank's contribution to a sum, as it lies in memory: f32, or bf16 when it was rounded on its way.
struct Contribution {
  const std::byte* data = nullptr;
  DType stored = DType::f32;
};

/// to = or += contributions[0] + contributions[1] + ..., each rounded to `wire`, summed in float in that order.
/// `to` may be one of the contributions.
void sum_in_order(std::span<const Contribution> contributions, DType wire, std::int64_t count, Write write, float* to);

/// Floats rounded to bf16.
void round_to_bf16(const float* from, std::int64_t count, bf16* to);

/// Copies `local` to its own place in `full`, unless it lies there.
void copy_own_piece(const Transfer& transfer, int rank);

}  // namespace fsdp::comm
