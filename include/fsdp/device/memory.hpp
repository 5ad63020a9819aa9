// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tensor memory: blocks, the ledger that counts them by kind, and the two-ended arena.
///
/// Blocks and arenas are templates over the device, so that `Meta` counts exactly the bytes that another device would
/// allocate.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp::device {

/// Every tensor is aligned to this many bytes: a cache line, and an AVX-512 register.
inline constexpr std::int64_t alignment = 64;

/// Purposes of tensor memory: the rows of the dry run's table of memory.
enum class MemoryKind : std::uint8_t { weights, gathered, gradients, optimizer, activations, scratch, cache };
inline constexpr std::array<std::string_view, 7> memory_kind_names = {
    "weights", "gathered", "gradients", "optimizer", "activations", "scratch", "cache"};

using BytesByKind = std::array<std::int64_t, memory_kind_names.size()>;

/// A count of one rank's tensor memory. All blocks of a rank share one ledger.
class Ledger {
 public:
  void add(MemoryKind kind, std::int64_t bytes);     ///< counts a block that was allocated
  void remove(MemoryKind kind, std::int64_t bytes);  ///< removes a block that was freed

  const BytesByKind& current() const { return current_; }    ///< bytes currently allocated, by kind
  std::int64_t bytes() const { return total_; }              ///< bytes currently allocated
  std::int64_t peak() const { return peak_; }                ///< peak of `bytes`
  std::int64_t allocations() const { return allocations_; }  ///< blocks ever made; a steady-state step makes none

 private:
  BytesByKind current_{};
  std::int64_t total_ = 0, peak_ = 0, allocations_ = 0;
};

/// Enqueues a copy of `count` elements between host and device, or within a device.
template <class Device, class T>
void move(typename Device::Queue& queue, const T* from, T* to, std::int64_t count) {
  Device::move(queue, reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(to),
               count * static_cast<std::int64_t>(sizeof(T)));
}

/// The part of a Block that does not depend on the device: memory that is counted in a ledger, and what frees it.
class CountedMemory {
 public:
  /// Frees memory, or makes lent memory readable again for its owner.
  using Release = void (*)(std::byte* data, std::int64_t bytes);

  CountedMemory();
  /// Counts `bytes` at `data` in the ledger until its destruction, which calls `release`. `lent`: shares the ownership
  /// of lent memory; null for allocated memory.
  CountedMemory(Ledger& ledger, MemoryKind kind, std::byte* data, std::int64_t bytes, Release release,
                std::shared_ptr<std::byte> lent);
  CountedMemory(CountedMemory&&) noexcept;
  CountedMemory& operator=(CountedMemory&&) noexcept;
  ~CountedMemory();

  std::byte* data() const;     ///< start of the memory; null for an empty block
  std::int64_t bytes() const;  ///< size of the block

 private:
  struct End {
    MemoryKind kind;
    std::byte* data;
    std::int64_t bytes;
    Release release;
    std::shared_ptr<std::byte> lent;

    void operator()(Ledger* ledger) const;
  };
  std::unique_ptr<Ledger, End> counted_;  ///< not the memory, which a device that only counts may leave null
};

/// Owns one contiguous, zeroed allocation of a device, counted in a ledger while it lives.
template <class Device>
class Block : public CountedMemory {
 public:
  Block() = default;
  /// Uses the memory `lent` if given (see comm::shared_memory), else allocates memory.
  Block(Ledger& ledger, MemoryKind kind, std::int64_t bytes, const std::shared_ptr<std::byte>& lent = nullptr)
      : CountedMemory(ledger, kind, lent ? lent.get() : Device::allocate(bytes), bytes,
                      lent ? &Block::unpoison : &Block::deallocate, lent) {}

 private:
  static void unpoison(std::byte* data, std::int64_t bytes) { Device::unpoison(data, bytes); }
  static void deallocate(std::byte* data, std::int64_t bytes) { Device::deallocate(data, bytes); }
};

/// Two stacks that grow towards each other in one block. The low end stores the tensors that backward needs, last in
/// first out. The high end stores the residual gradient and, on top of it, frames of temporaries and matmul scratch.
///
/// Released bytes are poisoned under AddressSanitizer and filled with NaN in debug builds (Device::poison).
template <class Device>
class Arena {
 public:
  /// The two stacks.
  enum class End : std::uint8_t { low, high };

  /// A position at one end.
  struct Mark {
    std::int64_t offset = 0;
  };

  Arena() = default;
  /// Makes an arena of `capacity` bytes. Meta plans with `unbounded()` and reads `peak()` afterwards.
  Arena(Ledger& ledger, std::int64_t capacity)
      : block_(ledger, MemoryKind::activations, capacity), capacity_(capacity) {
    Device::poison(block_.data(), capacity);
  }
  /// Makes an arena without memory or a limit, for devices that only count.
  static Arena unbounded() {
    Arena arena;
    arena.capacity_ = std::numeric_limits<std::int64_t>::max() / 2;
    return arena;
  }
  /// Makes an arena of `bytes`, as computed by a dry run; unbounded on a device that only counts, as in the dry run
  /// itself.
  static Arena planned(Ledger& ledger, std::int64_t bytes) {
    if constexpr (Device::counts_only)
      return unbounded();
    else
      return Arena(ledger, bytes);
  }

  /// Allocates an uninitialised tensor at one end. Throws MemoryError if the two ends would meet.
  template <class T>
  Tensor<T> allocate(End end, const Shape& shape, MemoryKind kind = MemoryKind::activations) {
    const std::int64_t bytes =
        round_up(checked_multiply(shape.numel(), static_cast<std::int64_t>(sizeof(T))), alignment);
    // The comparison is unsigned, so that a negative size, from a module or an operation, is rejected as well.
    const bool fits = static_cast<std::uint64_t>(bytes) <= static_cast<std::uint64_t>(capacity_ - low_ - high_);
    require<MemoryError>(fits, "activation arena: ", bytes, " bytes asked for, ", capacity_ - low_ - high_, " of ",
                         capacity_, " left; the dry run planned less than this step needs");
    const std::int64_t offset = end == End::low ? low_ : base() - high_ - bytes;
    (end == End::low ? low_ : high_) += bytes;
    if (kind == MemoryKind::scratch) scratch_ += bytes;
    peak_held_ = std::max(peak_held_, low_ + high_ - scratch_);
    if (low_ + high_ > peak_) {
      peak_ = low_ + high_;
      peak_scratch_ = scratch_;
    }
    Device::unpoison(address(offset), bytes);
    return {reinterpret_cast<T*>(address(offset)), shape};
  }

  Mark mark(End end) const { return {end == End::low ? low_ : high_}; }  ///< the current position of an end

  /// Frees everything allocated at `end` since `mark`.
  void release(End end, Mark mark) {
    std::int64_t& top = end == End::low ? low_ : high_;
    require(mark.offset <= top, "arena: released out of order");
    Device::poison(address(end == End::low ? mark.offset : base() - top), top - mark.offset);
    top = mark.offset;
  }

  std::int64_t capacity() const { return capacity_; }          ///< bytes of both ends together
  std::int64_t used() const { return low_ + high_; }           ///< bytes currently allocated
  std::int64_t peak() const { return peak_; }                  ///< peak of `used`
  std::int64_t peak_held() const { return peak_held_; }        ///< peak of the allocated bytes without scratch
  std::int64_t peak_scratch() const { return peak_scratch_; }  ///< bytes of scratch included in peak()

  /// Frees the memory that is allocated at the high end during its lifetime.
  class Frame {
   public:
    /// Begins a frame. The arena must outlive it.
    explicit Frame(Arena& arena) : arena_(&arena), mark_(arena.mark(End::high)), scratch_(arena.scratch_) {}
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;
    ~Frame() {
      arena_->scratch_ = scratch_;
      arena_->release(End::high, mark_);
    }
    /// Allocates an uninitialised tensor until the frame's end. Throws MemoryError if the two ends would meet.
    template <class T>
    Tensor<T> allocate(const Shape& shape, MemoryKind kind = MemoryKind::activations) {
      return arena_->template allocate<T>(End::high, shape, kind);
    }

   private:
    Arena* arena_;
    Mark mark_;
    std::int64_t scratch_;
  };

  /// Frees the memory that is allocated at both ends during its lifetime, even if an exception ends it.
  class Scope {
   public:
    /// Begins a scope. The arena must outlive it.
    explicit Scope(Arena& arena) : arena_(&arena), low_(arena.mark(End::low)), high_(arena.mark(End::high)) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() {
      arena_->release(End::high, high_);
      arena_->release(End::low, low_);
    }

   private:
    Arena* arena_;
    Mark low_, high_;
  };

 private:
  /// Returns the offset from which the high end grows down. An unbounded arena only counts, so any base is valid.
  std::int64_t base() const { return capacity_ / alignment * alignment; }
  std::byte* address(std::int64_t offset) const {
    return block_.data() == nullptr ? Device::unbacked(offset) : block_.data() + offset;
  }

  Block<Device> block_;
  std::int64_t capacity_ = 0, low_ = 0, high_ = 0, scratch_ = 0;
  std::int64_t peak_ = 0, peak_held_ = 0, peak_scratch_ = 0;
};

}  // namespace fsdp::device
