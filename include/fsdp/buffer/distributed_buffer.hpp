// SPDX-License-Identifier: Apache-2.0
/// @file
/// A group of tensors in one flat buffer per rank, with its placements in the type, and the moves between placements.
///
/// A DistributedBuffer is a view; blocks own the memory. `redistribute` is overload resolution, over the axis that
/// changes and, where something moves, with that axis' communicator:
///     Shard -> Replicate   all-gather
///     Partial -> Shard     reduce-scatter
///     Partial -> Replicate all-reduce, in place
///     Replicate -> Shard   no communication: a view of this rank's part
/// Anything else does not compile. Over the outer axis of a mesh, collectives are in place: each rank's part lies in
/// the range that is gathered or reduced. Idea: DBuffer of Megatron-FSDP; there the placement is a run-time value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/buffer/layout.hpp>
#include <fsdp/buffer/placement.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/tensor.hpp>

namespace fsdp::buffer {

/// A rank's place in a mesh.
struct Coordinates {
  /// The inner axis first: a mesh of one axis has no other.
  constexpr Coordinates(int shard = 0, int replica = 0) : shard(shard), replica(replica) {}
  int shard;    ///< on the axis that cuts tensors
  int replica;  ///< on the outer axis
};

/// This rank's part of a group of tensors, in one flat buffer that somebody else owns. P are its placements, one for
/// each axis of the mesh, the outer one first; the layout says which element is where. A buffer is a view and is copied
/// as one.
template <class T, class Device, Placement... P>
class DistributedBuffer {
 public:
  using At = Placements<P...>;
  static_assert(At::axes > 0);  // asks Placements whether these fit together

  DistributedBuffer() = default;
  /// `data` holds size() elements; `layout` must outlive the buffer.
  DistributedBuffer(const Layout& layout, Coordinates at, T* data) : layout_(&layout), at_(at), data_(data) {}

  /// Which element is where.
  const Layout& layout() const { return *layout_; }
  /// The rank's place.
  Coordinates at() const { return at_; }
  /// Whether it has memory: not before it is given some, nor after its sum was used up.
  bool placed() const { return data_ != nullptr; }
  /// Of a rank that holds nothing it may be nullptr.
  T* data() const {
    require(data_ != nullptr || (layout_ != nullptr && size() == 0),
            "distributed buffer: used before it was placed or after it was reduced");
    return data_;
  }
  /// Elements of this rank's buffer.
  std::int64_t size() const {
    if constexpr (At::shards_shards) return layout_->across_size(at_.shard);
    return At::shards_tensors ? layout_->local_size(at_.shard) : layout_->full_size;
  }

  /// Tensor `index`, whole.
  Tensor<T> tensor(std::int64_t index) const requires(!At::shards_tensors) {
    const auto i = static_cast<std::size_t>(index);
    return Tensor<T>(data() + layout_->offsets[i], layout_->shapes[i]);
  }

  /// What this rank holds; a buffer that is not sharded holds every tensor whole.
  std::vector<Piece> pieces() const {
    if constexpr (At::shards_shards) return layout_->pieces_across(at_.shard, at_.replica);
    if constexpr (At::shards_tensors) return layout_->pieces(at_.shard);
    return layout_->whole();
  }
  /// Elements of a piece; see pieces().
  Tensor<T> piece(const Piece& part) const { return Tensor<T>(data() + part.local, {part.count}); }

  /// Gives the memory up: later use throws LogicError.
  T* consume() { return std::exchange(data_, nullptr); }

 private:
  const Layout* layout_ = nullptr;
  Coordinates at_;
  T* data_ = nullptr;
};

template <class From, class To>
inline constexpr Change change = change_of<typename From::At, typename To::At>();

/// Segments of a collective between a local and a full buffer of one layout.
template <class T>
std::vector<comm::Segment<T>> segments(const Layout& layout, T* local, T* full) {
  std::vector<comm::Segment<T>> list(layout.runs.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Run& run = layout.runs[i];
    list[i] = {local + run.local, full + run.full, run.counts};
  }
  return list;
}

namespace detail {

/// Whether a mesh's outer axis changes.
template <class From, class To>
inline constexpr bool over_outer = From::At::axes == 2 && change<From, To>.axis == 0;

/// Over the axis that changes; over the outer one `local` lies in its place inside `full`.
template <bool outer, class T>
std::vector<comm::Segment<T>> segments_of(const Layout& layout, Coordinates at, T* local, T* full) {
  if constexpr (outer) {
    require(local == full + layout.across_of(at.shard).begin(at.replica),
            "redistribute: over the outer axis a rank's part lies in the whole");
    return std::vector<comm::Segment<T>>(1, {local, full, layout.across_of(at.shard).counts});
  } else {
    return segments(layout, local, full);
  }
}

/// The same with all parts in their places.
template <bool outer, class T>
std::vector<comm::Segment<T>> segments_in_place(const Layout& layout, Coordinates at, T* full) {
  if constexpr (outer) {
    const Run& across = layout.across_of(at.shard);
    return std::vector<comm::Segment<T>>(1, {full + across.begin(at.replica), full, across.counts});
  } else {
    std::vector<comm::Segment<T>> list(layout.runs.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Run& run = layout.runs[i];
      list[i] = {full + run.begin(at.shard), full + run.full, run.counts};
    }
    return list;
  }
}

/// Compiled once for the types that stacks move (src/buffer/segments.cpp).
#define FSDP_SEGMENTS(how, T)                                                                    \
  how std::vector<comm::Segment<T>> segments_of<false, T>(const Layout&, Coordinates, T*, T*);   \
  how std::vector<comm::Segment<T>> segments_of<true, T>(const Layout&, Coordinates, T*, T*);    \
  how std::vector<comm::Segment<T>> segments_in_place<false, T>(const Layout&, Coordinates, T*); \
  how std::vector<comm::Segment<T>> segments_in_place<true, T>(const Layout&, Coordinates, T*);
FSDP_SEGMENTS(extern template, float)
FSDP_SEGMENTS(extern template, bf16)

template <class From, class To>
inline constexpr bool reduces =
    change<From, To>.move == Move::reduce_scatter || change<From, To>.move == Move::all_reduce;

}  // namespace detail

/// Anything that is not in the table, or a reduction that names no wire type.
template <class C, class T, class Device, Placement... F, Placement... G, class... Rest>
void redistribute(C&, const DistributedBuffer<T, Device, F...>&, const DistributedBuffer<T, Device, G...>&, Rest&&...) {
  constexpr bool reduction = detail::reduces<DistributedBuffer<T, Device, F...>, DistributedBuffer<T, Device, G...>>;
  static_assert(
      !reduction,
      "fsdp: redistribute of a partial sum rounds what it sends to a wire type: write redistribute<float>(...)");
  static_assert(
      reduction,
      "fsdp: redistribute cannot change this placement into that one; the moves are Shard to Replicate, Partial "
      "to Shard, Partial to Replicate and Replicate to Shard, on one axis at a time: go through one of these");
}
/// The same with a wire type, or a reduction whose partial sum is still needed.
template <class Wire, class C, class T, class Device, Placement... F, Placement... G, class... Rest>
void redistribute(C&, const DistributedBuffer<T, Device, F...>&, const DistributedBuffer<T, Device, G...>&, Rest&&...) {
  constexpr bool reduction = detail::reduces<DistributedBuffer<T, Device, F...>, DistributedBuffer<T, Device, G...>>;
  static_assert(!reduction, "fsdp: redistribute uses a partial sum up: pass it with std::move");
  static_assert(
      reduction,
      "fsdp: redistribute cannot change this placement into that one; the moves are Shard to Replicate, Partial "
      "to Shard, Partial to Replicate and Replicate to Shard, on one axis at a time: go through one of these");
}

/// All-gather: `to` is whole on the axis when the result was waited for.
template <class C, class T, class Device, Placement... F, Placement... G>
requires(change<DistributedBuffer<T, Device, F...>, DistributedBuffer<T, Device, G...>>.move ==
         Move::all_gather) comm::Pending<C> redistribute(C& communicator,
                                                         const DistributedBuffer<T, Device, F...>& from,
                                                         const DistributedBuffer<T, Device, G...>& to,
                                                         comm::Label label) {
  constexpr bool outer = detail::over_outer<DistributedBuffer<T, Device, F...>, DistributedBuffer<T, Device, G...>>;
  const auto list = detail::segments_of<outer>(from.layout(), from.at(), from.data(), to.data());
  return comm::all_gather(communicator, std::span<const comm::Segment<T>>(list), label);
}

/// Reduce-scatter of a partial sum, which is used up; `to` is replaced or added to. Wire is the element type sent.
template <class Wire, class C, class T, class Device, Placement... F, Placement... G>
requires(change<DistributedBuffer<T, Device, F...>, DistributedBuffer<T, Device, G...>>.move ==
         Move::reduce_scatter) comm::Pending<C> redistribute(C& communicator, DistributedBuffer<T, Device, F...>&& from,
                                                             const DistributedBuffer<T, Device, G...>& to, Write write,
                                                             comm::Label label) {
  constexpr bool outer = detail::over_outer<DistributedBuffer<T, Device, F...>, DistributedBuffer<T, Device, G...>>;
  const auto list = detail::segments_of<outer>(from.layout(), from.at(), to.data(), from.consume());
  return comm::reduce_scatter<Wire>(communicator, std::span<const comm::Segment<T>>(list), write, label,
                                    comm::Contributions::spent);
}

/// All-reduce in place: `from` and `to` are the same memory; `from` is used up.
template <class Wire, class C, class T, class Device, Placement... F, Placement... G>
requires(change<DistributedBuffer<T, Device, F...>, DistributedBuffer<T, Device, G...>>.move ==
         Move::all_reduce) comm::Pending<C> redistribute(C& communicator, DistributedBuffer<T, Device, F...>&& from,
                                                         const DistributedBuffer<T, Device, G...>& to,
                                                         comm::Label label) {
  T* const full = from.consume();
  require(full == to.data(), "redistribute: an all-reduce is in place");
  constexpr bool outer = detail::over_outer<DistributedBuffer<T, Device, F...>, DistributedBuffer<T, Device, G...>>;
  const auto list = detail::segments_in_place<outer>(to.layout(), to.at(), full);
  return comm::all_reduce<Wire>(communicator, std::span<const comm::Segment<T>>(list), label);
}

/// This rank's part of a replicated buffer; only a layout of one run is one contiguous range.
template <class T, class Device>
DistributedBuffer<T, Device, Shard> redistribute(const DistributedBuffer<T, Device, Replicate>& from) {
  const Layout& layout = from.layout();
  require(layout.runs.size() == 1, "redistribute: only a flat layout's shard is a view of the replicated buffer");
  return {layout, from.at(), from.data() + layout.runs.front().begin(from.at().shard)};
}

/// The same over the outer axis.
template <class T, class Device>
DistributedBuffer<T, Device, Shard, Shard> redistribute(const DistributedBuffer<T, Device, Replicate, Shard>& from) {
  return {from.layout(), from.at(), from.data() + from.layout().across_of(from.at().shard).begin(from.at().replica)};
}

}  // namespace fsdp::buffer
