// SPDX-License-Identifier: Apache-2.0
/// @file
/// A collective with element types erased, and the two loops that all CPU backends use: copy and ordered sum.
///
/// Backend cores work on Transfers and so compile once; tessera/comm/backend.hpp is their typed front end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/comm/communicator.hpp>

namespace fsdp::comm {

/// A Segment with its element type erased, or an Exchange: `local` is then its `send`, and `full` its `receive`. Counts
/// are in elements of Transfer::dtype.
struct ByteSegment {
  std::byte* local = nullptr;
  std::byte* full = nullptr;
  std::span<const std::int64_t> counts;     ///< sizes of the pieces of `full`, one per rank
  std::span<const std::int64_t> sent = {};  ///< sizes of the pieces of an exchange's `local`; empty for a segment

  std::int64_t begin(int rank) const;  ///< elements of `full` before `rank`'s piece
  std::int64_t count(int rank) const { return counts[static_cast<std::size_t>(rank)]; }  ///< elements of `rank`'s piece
  std::int64_t total() const;                                                            ///< elements of `full`
  std::int64_t sent_begin(int peer) const;  ///< elements of `local` before `peer`'s piece; 0 except in an exchange
  /// Returns the number of elements of `local` that this rank, `rank`, sends to `peer`.
  std::int64_t sent_count(int rank, int peer) const {
    return sent.empty() ? count(rank) : sent[static_cast<std::size_t>(peer)];
  }
  std::int64_t local_total(int rank) const;  ///< elements of `local` on this rank, `rank`
};

/// The same segment or exchange with its element type erased.
/// @{
template <class T>
ByteSegment bytes_of(const Segment<T>& segment) {
  return {.local = reinterpret_cast<std::byte*>(segment.local),
          .full = reinterpret_cast<std::byte*>(segment.full),
          .counts = segment.counts};
}
template <class T>
ByteSegment bytes_of(const Exchange<T>& exchange) {
  return {.local = reinterpret_cast<std::byte*>(const_cast<T*>(exchange.send)),
          .full = reinterpret_cast<std::byte*>(exchange.receive),
          .counts = exchange.receive_counts,
          .sent = exchange.send_counts};
}
/// @}

/// The segments or exchanges of one collective with their element type erased.
struct PartList {
  const void* first = nullptr;
  std::size_t count = 0;
  DType dtype = DType::u8;  ///< type of the elements in memory
  ByteSegment (*part)(const void* first, std::size_t index) = nullptr;

  ByteSegment operator[](std::size_t index) const { return part(first, index); }  ///< one of them, as bytes
};
/// Returns one of a list of segments or exchanges, as bytes.
template <template <class> class Part, class T>
ByteSegment part_at(const void* first, std::size_t index) {
  return bytes_of(static_cast<const Part<T>*>(first)[index]);
}
/// Returns a list of segments or exchanges with its element type erased; `list` must outlive it.
template <template <class> class Part, class T>
PartList parts_of(std::span<const Part<T>> list) {
  return {.first = list.data(), .count = list.size(), .dtype = dtype_of<T>(), .part = part_at<Part, T>};
}

/// The properties of a transfer that must be the same on all ranks. They are few enough to be compared in every
/// transfer, even without Options::checks.
struct Outline {
  Op op = Op::barrier;
  DType dtype = DType::u8;     ///< type of the elements in memory
  DType wire = DType::u8;      ///< type that contributions to a sum are rounded to
  std::uint8_t reduction = 0;  ///< a different number for each Reduction and value type in a reduce; else 0
  int root = 0;
  std::int64_t segment_count = 0;
  std::int64_t elements = 0;      ///< number of elements of all `full`; exchanges are not counted
  std::uint64_t counts_hash = 0;  ///< hash of all counts of the segments; exchanges are not included

  friend bool operator==(const Outline&, const Outline&) = default;
};

/// One rank's description of a collective. A reduce or gather_bytes is an all_gather of bytes. A barrier has no
/// segments. A broadcast has one segment, whose `local` is the buffer (source on root, destination on the other ranks)
/// of counts[0] bytes.
struct Transfer : Outline {
  Write write = Write::overwrite;
  Contributions contributions = Contributions::kept;
  SumOrder order = SumOrder::any;  ///< order of summation in a reduce_scatter
  bool values = false;             ///< whether the data are small values, which are in host memory whatever the device
  std::vector<ByteSegment> segments;

  std::int64_t element_bytes() const { return size_of(dtype); }  ///< in memory
  /// Returns whether the collective sums contributions.
  bool reduces() const { return op == Op::reduce_scatter || op == Op::all_reduce; }
  /// Returns whether each rank copies its piece of every rank's `local` into its own `full`.
  bool copies() const { return op == Op::all_gather || op == Op::all_to_all; }
};

/// Throws CollectiveError, with both outlines, unless they are equal.
void require_same(int rank, const Outline& mine, int peer, const Outline& theirs);
/// One piece of an exchange, with the number of elements that each of its two ranks expects.
struct CountedPiece {
  std::size_t exchange = 0;  ///< index of the exchange in the call
  int from = 0;
  int to = 0;
  std::int64_t sent = 0;
  std::int64_t received = 0;
};
/// Throws CollectiveError, which identifies both ranks, unless the receiver expects as many elements as the sender
/// sends.
void require_same_counts(const Monitor& monitor, const CountedPiece& piece);

/// Resets `transfer` for a new collective: sets all fields and clears the list of segments, but keeps its capacity.
void describe(Transfer& transfer, Op op, DType dtype, DType wire, Write write = Write::overwrite);
/// Appends a segment to `transfer`.
void add_segment(Transfer& transfer, const ByteSegment& segment);
/// Resets `transfer` and adds all segments or exchanges of a collective.
void describe(Transfer& transfer, Op op, const PartList& parts, DType wire, Write write = Write::overwrite);

/// Copies like memcpy. Large copies are split over `threads` OpenMP threads (0: as many as the calling thread's own
/// parallel regions have). OpenMP settings stay unchanged.
void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes, int threads = 0);

/// One rank's contribution to a sum, as it is stored: f32, or the wire type if it was rounded before it was sent.
struct Contribution {
  const std::byte* data = nullptr;
  DType stored = DType::f32;
};

/// Computes to = (c0 + c1) + c2 + ..., or ((to + c0) + c1) + ..., where each contribution is rounded to `wire` and
/// added in float. `to` may alias one of the contributions if it is overwritten, but not if it is accumulated into.
/// `threads`: as in copy_bytes; results are bit-identical for any number.
void sum_in_order(std::span<const Contribution> contributions, DType wire, std::int64_t count, Write write, float* to,
                  int threads = 0);

/// Rounds `count` floats to bf16.
void round_to_bf16(const float* from, std::int64_t count, bf16* to);

/// Copies the piece of each segment's `local` that is for this rank into its place in `full`, unless it is already in
/// place.
void copy_own_piece(const Transfer& transfer, int rank, int threads = 0);

}  // namespace fsdp::comm
