// SPDX-License-Identifier: Apache-2.0
/// @file
/// A group of tensors in one flat buffer per rank, with its placement in the type, and the moves between placements.
///
/// A DistributedBuffer is a view; blocks own the memory. `redistribute` is overload resolution:
///   Shard -> Replicate   all-gather
///   Partial -> Shard     reduce-scatter
///   Partial -> Replicate all-reduce, in place
///   Replicate -> Shard   no communication: a view of this rank's part
/// Anything else does not compile. Idea: DBuffer of Megatron-FSDP; there the placement is a run-time value.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/buffer/layout.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/tensor.hpp>

namespace fsdp::buffer {

struct Shard {};      ///< each rank holds its pieces
struct Replicate {};  ///< each rank holds everything
struct Partial {};    ///< each rank holds everything; the value is the sum over ranks

template <class P>
concept Placement = std::is_same_v<P, Shard> || std::is_same_v<P, Replicate> || std::is_same_v<P, Partial>;

template <class T, class Device, Placement P>
class DistributedBuffer {
 public:
  static constexpr bool sharded = std::is_same_v<P, Shard>;

  DistributedBuffer() = default;
  DistributedBuffer(const Layout& layout, int rank, T* data) : layout_(&layout), rank_(rank), data_(data) {}

  const Layout& layout() const { return *layout_; }
  int rank() const { return rank_; }
  bool placed() const { return data_ != nullptr; }
  T* data() const {
    require(data_ != nullptr, "distributed buffer: used before it was placed or after it was reduced");
    return data_;
  }
  /// Elements of this rank's buffer.
  std::int64_t size() const { return sharded ? layout_->local_size : layout_->full_size; }

  /// Tensor `index`, whole.
  Tensor<T> tensor(std::int64_t index) const requires(!sharded) {
    const auto i = static_cast<std::size_t>(index);
    return Tensor<T>(data() + layout_->offsets[i], layout_->shapes[i]);
  }

  /// What this rank holds; a Replicate buffer holds every tensor whole.
  std::vector<Piece> pieces() const {
    if constexpr (sharded) return layout_->pieces(rank_);
    std::vector<Piece> whole;
    for (std::size_t i = 0; i < layout_->shapes.size(); ++i)
      whole.push_back({.tensor = static_cast<std::int64_t>(i),
                       .begin = 0,
                       .count = layout_->shapes[i].numel(),
                       .local = layout_->offsets[i]});
    return whole;
  }
  Tensor<T> piece(const Piece& part) const { return Tensor<T>(data() + part.local, {part.count}); }

  /// Gives the memory up: later use throws LogicError.
  T* consume() { return std::exchange(data_, nullptr); }

 private:
  const Layout* layout_ = nullptr;
  int rank_ = 0;
  T* data_ = nullptr;
};

/// Segments of a collective between a local and a full buffer of one layout.
template <class T>
std::vector<comm::Segment<T>> segments(const Layout& layout, T* local, T* full) {
  std::vector<comm::Segment<T>> list;
  list.reserve(layout.runs.size());
  for (const Run& run : layout.runs) list.push_back({local + run.local, full + run.full, run.counts});
  return list;
}

/// Anything that is not in the table, or a reduction that names no wire type.
template <class C, class T, class Device, Placement From, Placement To, class... Rest>
void redistribute(C&, const DistributedBuffer<T, Device, From>&, const DistributedBuffer<T, Device, To>&, Rest&&...) {
  constexpr bool reduction = std::is_same_v<From, Partial> && !std::is_same_v<To, Partial>;
  static_assert(
      !reduction,
      "fsdp: redistribute of a partial sum rounds what it sends to a wire type: write redistribute<float>(...)");
  static_assert(
      reduction,
      "fsdp: redistribute cannot change this placement into that one; the moves are Shard to Replicate, Partial "
      "to Shard, Partial to Replicate and Replicate to Shard: go through one of these");
}
/// The same with a wire type, or a reduction whose partial sum is still needed.
template <class Wire, class C, class T, class Device, Placement From, Placement To, class... Rest>
void redistribute(C&, const DistributedBuffer<T, Device, From>&, const DistributedBuffer<T, Device, To>&, Rest&&...) {
  constexpr bool reduction = std::is_same_v<From, Partial> && !std::is_same_v<To, Partial>;
  static_assert(!reduction, "fsdp: redistribute uses a partial sum up: pass it with std::move");
  static_assert(
      reduction,
      "fsdp: redistribute cannot change this placement into that one; the moves are Shard to Replicate, Partial "
      "to Shard, Partial to Replicate and Replicate to Shard: go through one of these");
}

/// All-gather: `to`'s tensors are whole when the result was waited for.
template <class C, class T, class Device>
comm::Pending<C> redistribute(C& communicator, const DistributedBuffer<T, Device, Shard>& from,
                              const DistributedBuffer<T, Device, Replicate>& to, comm::Label label) {
  return comm::all_gather(communicator,
                          std::span<const comm::Segment<T>>(segments(from.layout(), from.data(), to.data())), label);
}

/// Reduce-scatter of a partial sum, which is used up; `to` is replaced or added to. Wire is the element type sent.
template <class Wire, class C, class T, class Device>
comm::Pending<C> redistribute(C& communicator, DistributedBuffer<T, Device, Partial>&& from,
                              const DistributedBuffer<T, Device, Shard>& to, Write write, comm::Label label) {
  return comm::reduce_scatter<Wire>(
      communicator, std::span<const comm::Segment<T>>(segments(from.layout(), to.data(), from.consume())), write,
      label);
}

/// All-reduce in place: `from` and `to` are the same memory; `from` is used up.
template <class Wire, class C, class T, class Device>
comm::Pending<C> redistribute(C& communicator, DistributedBuffer<T, Device, Partial>&& from,
                              const DistributedBuffer<T, Device, Replicate>& to, comm::Label label) {
  T* const full = from.consume();
  require(full == to.data(), "redistribute: an all-reduce is in place");
  std::vector<comm::Segment<T>> list;
  for (const Run& run : to.layout().runs) list.push_back({full + run.begin(to.rank()), full + run.full, run.counts});
  return comm::all_reduce<Wire>(communicator, std::span<const comm::Segment<T>>(list), label);
}

/// This rank's part of a replicated buffer; only a layout of one run is one contiguous range.
template <class C, class T, class Device>
DistributedBuffer<T, Device, Shard> redistribute(C& communicator, const DistributedBuffer<T, Device, Replicate>& from) {
  const Layout& layout = from.layout();
  require(layout.runs.size() == 1, "redistribute: only a flat layout's shard is a view of the replicated buffer");
  return {layout, communicator.rank(), from.data() + layout.runs.front().begin(communicator.rank())};
}

}  // namespace fsdp::buffer
