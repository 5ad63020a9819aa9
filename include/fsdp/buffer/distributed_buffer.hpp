// SPDX-License-Identifier: Apache-2.0
/// @file
/// A group of tensors in one flat buffer per rank. The buffer's type states its placements; `redistribute` changes
/// between them.
///
/// A DistributedBuffer is a view; blocks own the memory. `redistribute` selects the collective by overload resolution
/// from the axis whose placement changes. Except for views, it takes the communicator of that axis:
///     Shard -> Replicate   all-gather
///     Partial -> Shard     reduce-scatter
///     Partial -> Replicate all-reduce, in place
///     Replicate -> Shard   no communication: a view of this rank's part
/// Any other change does not compile. Collectives over a mesh's outer axis are in place: each rank's part aliases the
/// range that is gathered or reduced. Source of the idea: DBuffer of Megatron-FSDP, where the placement is a run-time
/// value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp::buffer {

/// The placements of all axes. Axis 0 is the outer one; the last axis shards a group's tensors over consecutive ranks.
/// The outer axis may be Shard only if the inner one is, so that a local buffer is one contiguous range.
template <Placement... P>
struct Placements {
  static constexpr std::size_t axes = sizeof...(P);  ///< number of axes of the mesh: 1 or 2
  static_assert(axes == 1 || axes == 2, "fsdp: a buffer has a placement for each of a mesh's axes, one or two");
  static constexpr std::array<bool, axes> sharded{std::is_same_v<P, Shard>...};    ///< whether each axis is Shard
  static constexpr std::array<bool, axes> partial{std::is_same_v<P, Partial>...};  ///< whether each axis is Partial
  static_assert(axes == 1 || !sharded.front() || sharded.back(),
                "fsdp: a buffer sharded over the outer axis alone is no contiguous range; shard the inner axis first");
  static constexpr bool shards_tensors = sharded.back();  ///< tensors are sharded over the inner axis
  /// Whether each shard is divided once more over the outer axis.
  static constexpr bool shards_shards = axes == 2 && sharded.front() && sharded.back();
};

/// The operation that changes one placement into another.
enum class Move : std::uint8_t { impossible, all_gather, reduce_scatter, all_reduce, view };

/// An operation over one axis.
struct Change {
  Move move = Move::impossible;  ///< the operation
  std::size_t axis = 0;          ///< the axis that it runs over
};

/// Returns the operation that changes From into To; impossible unless exactly one axis differs.
template <class From, class To>
consteval Change change_of() {
  if constexpr (From::axes != To::axes) {
    return {};
  } else {
    Change change;
    int changes = 0;
    for (std::size_t axis = 0; axis < From::axes; ++axis) {
      const bool sharded = From::sharded[axis], partial = From::partial[axis];
      const bool to_sharded = To::sharded[axis], to_partial = To::partial[axis];
      if (sharded == to_sharded && partial == to_partial) continue;
      ++changes;
      change.axis = axis;
      if (to_partial)
        change.move = Move::impossible;
      else if (sharded)
        change.move = Move::all_gather;
      else if (partial)
        change.move = to_sharded ? Move::reduce_scatter : Move::all_reduce;
      else
        change.move = Move::view;
    }
    return changes == 1 ? change : Change{};
  }
}

/// The coordinates of a rank in a mesh.
struct Coordinates {
  /// The inner axis comes first, since a mesh with one axis has no outer axis.
  constexpr Coordinates(int inner = 0, int outer = 0) : shard(inner), replica(outer) {}
  int shard;    ///< coordinate on the inner axis, which shards tensors
  int replica;  ///< coordinate on the outer axis
};

/// A non-owning view of this rank's part of a group of tensors, in one flat buffer. P: the placements, one per axis of
/// the mesh, outer axis first. The layout determines the position of each element. Copies alias the same memory.
template <class T, class Device, Placement... P>
class DistributedBuffer {
 public:
  using At = Placements<P...>;  ///< placements of the buffer
  static_assert(At::axes > 0);  // Placements checks that these fit together

  DistributedBuffer() = default;
  /// Views `data`, an array of size() elements. `layout` must outlive the buffer.
  DistributedBuffer(const Layout& layout, Coordinates at, T* data) : layout_(&layout), at_(at), data_(data) {}

  const Layout& layout() const { return *layout_; }  ///< determines the position of each element
  Coordinates at() const { return at_; }             ///< this rank's coordinates in the mesh
  /// Returns whether the buffer has memory. A default-constructed or consumed buffer has none.
  bool placed() const { return data_ != nullptr; }
  /// Returns the memory; may be nullptr if this rank's buffer has no elements. Throws LogicError if the buffer has
  /// elements but no memory.
  T* data() const {
    require(data_ != nullptr || (layout_ != nullptr && size() == 0),
            "distributed buffer: used before it was placed or after it was reduced");
    return data_;
  }
  /// Returns the number of elements of this rank's buffer, padding included.
  std::int64_t size() const {
    if constexpr (At::shards_shards) return layout_->across_size(at_.shard, at_.replica);
    return At::shards_tensors ? layout_->local_size(at_.shard) : layout_->full_size;
  }

  /// Returns tensor number `index` as a whole.
  Tensor<T> tensor(std::int64_t index) const requires(!At::shards_tensors) {
    const auto i = static_cast<std::size_t>(index);
    return Tensor<T>(data() + layout_->offsets[i], layout_->shapes[i]);
  }

  /// Returns the ranges of tensors in this rank's buffer. An unsharded buffer contains every tensor as a whole.
  std::vector<TensorRange> ranges() const {
    if constexpr (At::shards_shards) return layout_->ranges_across(at_.shard, at_.replica);
    if constexpr (At::shards_tensors) return layout_->ranges(at_.shard);
    return layout_->whole();
  }
  /// Returns a view of one of ranges().
  Tensor<T> range(const TensorRange& part) const { return Tensor<T>(data() + part.local, {part.count}); }

  /// Returns the memory and drops it from this view: later use throws LogicError.
  T* consume() { return std::exchange(data_, nullptr); }

 private:
  const Layout* layout_ = nullptr;
  Coordinates at_;
  T* data_ = nullptr;
};

namespace detail {

/// The operation that changes placements F into G, and whether it runs over a mesh's outer axis.
/// @{
template <class F, class G>
inline constexpr Move move_of = change_of<F, G>().move;
template <class F, class G>
inline constexpr bool over_outer = F::axes == 2 && change_of<F, G>().axis == 0;
/// @}

/// Returns the segments of a collective over the axis whose placement changes. If it is in place, or over the outer
/// axis, every `local` aliases its range of `full`.
template <bool outer, bool in_place = false, class T>
std::vector<comm::Segment<T>> segments_of(const Layout& layout, Coordinates at, T* local, T* full) {
  std::vector<comm::Segment<T>> list;
  if constexpr (outer) {
    const Run& across = layout.across_of(at.shard);
    T* const part = full + across.begin(at.replica);
    require(in_place || local == part, "redistribute: over the outer axis a rank's part lies in the whole");
    list.push_back({part, full, across.counts});
  } else {
    list.reserve(layout.runs.size());
    for (const Run& run : layout.runs)
      list.push_back({in_place ? full + run.begin(at.shard) : local + run.local, full + run.full, run.counts});
  }
  return list;
}

/// Reports why a call of redistribute does not compile: the change is not in the table above, or a reduction lacks a
/// wire type or is of an lvalue.
template <class F, class G, bool has_wire>
consteval void explain_change() {
  constexpr bool reduction = move_of<F, G> == Move::reduce_scatter || move_of<F, G> == Move::all_reduce;
  static_assert(
      !reduction || has_wire,
      "fsdp: redistribute of a partial sum rounds what it sends to a wire type: write redistribute<float>(...)");
  static_assert(!reduction || !has_wire, "fsdp: redistribute uses a partial sum up: pass it with std::move");
  static_assert(
      reduction,
      "fsdp: redistribute cannot change this placement into that one; the moves are Shard to Replicate, Partial "
      "to Shard, Partial to Replicate and Replicate to Shard, on one axis at a time: go through one of these");
}

}  // namespace detail

/// The change from the placements of From to those of To.
template <class From, class To>
inline constexpr Change change = change_of<typename From::At, typename To::At>();

/// Returns the segments of a collective between a local and a full buffer of one layout.
template <class T>
std::vector<comm::Segment<T>> segments(const Layout& layout, T* local, T* full) {
  return detail::segments_of<false>(layout, {}, local, full);
}

/// Chosen if no other overload accepts the call, which does not compile.
/// @{
template <class C, class T, class Device, Placement... F, Placement... G, class... Rest>
void redistribute(C&, const DistributedBuffer<T, Device, F...>&, const DistributedBuffer<T, Device, G...>&, Rest&&...) {
  detail::explain_change<Placements<F...>, Placements<G...>, false>();
}
template <class Wire, class C, class T, class Device, Placement... F, Placement... G, class... Rest>
void redistribute(C&, const DistributedBuffer<T, Device, F...>&, const DistributedBuffer<T, Device, G...>&, Rest&&...) {
  detail::explain_change<Placements<F...>, Placements<G...>, true>();
}
/// @}

/// All-gathers `from` into `to`, which is complete after a wait on the result.
template <class C, class T, class Device, Placement... F, Placement... G>
comm::Pending<C> redistribute(C& communicator, const DistributedBuffer<T, Device, F...>& from,
                              const DistributedBuffer<T, Device, G...>& to,
                              comm::Label label) requires(detail::move_of<Placements<F...>, Placements<G...>> ==
                                                          Move::all_gather) {
  constexpr bool outer = detail::over_outer<Placements<F...>, Placements<G...>>;
  const auto list = detail::segments_of<outer>(from.layout(), from.at(), from.data(), to.data());
  return comm::all_gather(communicator, list, label);
}

/// Reduce-scatters the partial sum `from` into `to`, which `write` overwrites or adds to. `from` is consumed. Wire: the
/// element type that is sent; `order`: the order of the summation over ranks.
template <class Wire, class C, class T, class Device, Placement... F, Placement... G>
comm::Pending<C> redistribute(
    C& communicator, DistributedBuffer<T, Device, F...>&& from, const DistributedBuffer<T, Device, G...>& to,
    Write write, comm::Label label,
    comm::SumOrder order = comm::SumOrder::any) requires(detail::move_of<Placements<F...>, Placements<G...>> ==
                                                         Move::reduce_scatter) {
  constexpr bool outer = detail::over_outer<Placements<F...>, Placements<G...>>;
  const auto list = detail::segments_of<outer>(from.layout(), from.at(), to.data(), from.consume());
  return comm::reduce_scatter<Wire>(communicator, list, write, label, comm::Contributions::spent, order);
}

/// All-reduces in place: `from` and `to` must alias the same memory. `from` is consumed.
template <class Wire, class C, class T, class Device, Placement... F, Placement... G>
comm::Pending<C> redistribute(C& communicator, DistributedBuffer<T, Device, F...>&& from,
                              const DistributedBuffer<T, Device, G...>& to,
                              comm::Label label) requires(detail::move_of<Placements<F...>, Placements<G...>> ==
                                                          Move::all_reduce) {
  T* const full = from.consume();
  require(full == to.data(), "redistribute: an all-reduce is in place");
  constexpr bool outer = detail::over_outer<Placements<F...>, Placements<G...>>;
  const auto list = detail::segments_of<outer, true>(to.layout(), to.at(), full, full);
  return comm::all_reduce<Wire>(communicator, list, label);
}

/// Returns a view of this rank's part of a replicated buffer. Throws LogicError unless the layout has one run and no
/// padding between parts, since otherwise the replicated buffer does not contain the part's buffer.
template <class T, class Device>
DistributedBuffer<T, Device, Shard> redistribute(const DistributedBuffer<T, Device, Replicate>& from) {
  const Layout& layout = from.layout();
  require(layout.runs.size() == 1 && layout.runs.front().counts == layout.local_sizes,
          "redistribute: only a flat layout's shard is a view of the replicated buffer");
  return {layout, from.at(), from.data() + layout.runs.front().begin(from.at().shard)};
}

/// Returns a view of this rank's part over the outer axis.
template <class T, class Device>
DistributedBuffer<T, Device, Shard, Shard> redistribute(const DistributedBuffer<T, Device, Replicate, Shard>& from) {
  return {from.layout(), from.at(), from.data() + from.layout().across_of(from.at().shard).begin(from.at().replica)};
}

}  // namespace fsdp::buffer
