// SPDX-License-Identifier: Apache-2.0
/// @file
/// Timed collectives of float tensors: their memory, and the collectives that a calibration measures, within nodes or
/// between them. Measurements access a communicator only through these functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/device/memory.hpp>

#include "rounds.hpp"

namespace fsdp::calibrate {

/// One rank's tensors for collectives: one tensor for each call of a sample, divided into nearly equal pieces. Since
/// each call has its own tensor, the tensor is not in the caches, as in a training step.
template <class Device>
class CollectiveBuffers {
 public:
  /// `memory(bytes)` returns a communicator's shared memory, or nullptr.
  template <class Memory>
  CollectiveBuffers(std::int64_t bytes, int rank, int ranks, Memory memory)
      : elements_(bytes / 4),
        calls_(static_cast<int>(std::clamp<std::int64_t>(64'000'000 / bytes, 1, 64))),
        rank_(static_cast<std::size_t>(rank)) {
    constexpr std::int64_t line = device::alignment / 4;
    const std::int64_t chunk = ceil_divide(elements_, ranks);
    for (int peer = 0; peer < ranks; ++peer)
      counts_.push_back(std::clamp<std::int64_t>(elements_ - peer * chunk, 0, chunk));
    begin_ = std::accumulate(counts_.begin(), counts_.begin() + rank, std::int64_t{0});
    full_stride_ = round_up(elements_, line);
    shard_stride_ = round_up(std::max<std::int64_t>(chunk, 1), line);
    received_counts_.assign(counts_.size(), counts_[rank_]);
    received_stride_ = round_up(chunk * ranks, line);
    const auto block = [&](std::int64_t elements) {
      const std::int64_t size = elements * calls_ * 4;
      return Block(ledger_, device::MemoryKind::scratch, size, memory(size));
    };
    full_ = block(full_stride_);
    shard_ = block(shard_stride_);
    received_ = Block(ledger_, device::MemoryKind::scratch, received_stride_ * calls_ * 4, nullptr);
    if constexpr (Device::host_memory) touch();
  }
  CollectiveBuffers(const CollectiveBuffers&) = delete;
  CollectiveBuffers& operator=(const CollectiveBuffers&) = delete;

  int calls() const { return calls_; }  ///< number of calls in one sample, which then takes some milliseconds
  std::int64_t bytes() const { return elements_ * 4; }  ///< bytes of one tensor
  std::int64_t own_bytes() const { return counts_[rank_] * 4; }
  std::int64_t exchanged_bytes() const { return own_bytes() * std::ssize(counts_); }  ///< bytes that this rank receives

  /// Returns segments whose local piece is outside of the full tensor, like a shard at rest.
  std::vector<comm::Segment<float>> apart(int call) const { return {{shard(call), full(call), counts_}}; }
  /// Returns segments whose local piece aliases its range of the full tensor.
  std::vector<comm::Segment<float>> in_place(int call) const { return {{full(call) + begin_, full(call), counts_}}; }
  /// Returns an exchange of the full tensor's pieces: each rank receives its own piece from all, in separate memory.
  std::vector<comm::Exchange<float>> exchange(int call) const {
    return {{full(call), counts_, received(call), received_counts_}};
  }
  /// Returns the part with equal pieces, which MPI's collectives need: up to ranks - 1 elements are omitted.
  std::span<float> whole(int call) const { return {full(call), equal_piece() * counts_.size()}; }
  std::span<float> piece(int call) const { return {shard(call), equal_piece()}; }

 private:
  using Block = device::Block<Device>;

  float* full(int call) const { return reinterpret_cast<float*>(full_.data()) + call * full_stride_; }
  float* received(int call) const { return reinterpret_cast<float*>(received_.data()) + call * received_stride_; }
  float* shard(int call) const { return reinterpret_cast<float*>(shard_.data()) + call * shard_stride_; }
  std::size_t equal_piece() const { return static_cast<std::size_t>(elements_) / counts_.size(); }
  /// Writes all memory once, so that every page is allocated. Zeros remain zeros, however often they are summed.
  void touch() {
    for (const Block* block : {&full_, &shard_, &received_}) std::fill_n(block->data(), block->bytes(), std::byte{0});
  }

  std::int64_t elements_;
  int calls_;
  std::size_t rank_;
  std::vector<std::int64_t> counts_, received_counts_;
  std::int64_t begin_ = 0;
  /// Number of elements from one call's tensor to the next.
  std::int64_t full_stride_ = 0, shard_stride_ = 0, received_stride_ = 0;
  device::Ledger ledger_;
  Block full_, shard_, received_;
};

/// The collectives of one communicator, which the functions own with its memory. All communicators of its kind run them
/// at the same time.
struct Link {
  int ranks = 1;                               ///< number of ranks of the communicator
  int calls_of_few = 1, calls_of_many = 1;     ///< calls in one run of `few`, and in one of `gather` or `scatter`
  double bytes = 0;                            ///< bytes of the whole buffer in one call of gather and of scatter
  std::function<void()> few, gather, scatter;  ///< gathers of few bytes, gathers of many, reductions of many
  std::function<void()> exchange;              ///< all_to_all of few bytes
  /// Starts gathers of many bytes, which reuse the memory of a few calls.
  std::function<void(int calls)> start_gathers;
  std::function<bool()> last_gather_ended;
  std::function<void()> wait;  ///< waits for the gathers that were started
  /// Frees the memory but not the communicator; no function can be used afterwards.
  std::function<void()> free_buffers;
  std::size_t few_at = 0, gather_at = 0, scatter_at = 0;  ///< numbers of their cases in the rounds that time them

  void add_to(Rounds& rounds) {
    few_at = rounds.add(few);
    gather_at = rounds.add(gather);
    scatter_at = rounds.add(scatter);
  }
};

/// The gathers of few and many bytes, and the reductions of many bytes, of one communicator.
template <class Comm>
class LinkWork {
 public:
  explicit LinkWork(Comm part) : part_(std::move(part)) {
    few_.emplace(part_, std::int64_t{4096});
    many_.emplace(part_, std::int64_t{16} << 20);
  }

  static Link link(const std::shared_ptr<LinkWork>& own) {
    return {.ranks = own->part_.size(),
            .calls_of_few = own->few_->buffers.calls(),
            .calls_of_many = own->many_->buffers.calls(),
            .bytes = static_cast<double>(own->many_->buffers.bytes()),
            .few = [own] { own->run(*own->few_, gather); },
            .gather = [own] { own->run(*own->many_, gather); },
            .scatter = [own] { own->run(*own->many_, scatter); },
            .exchange = [own] { comm::all_to_all(own->part_, own->few_->buffers.exchange(0), {"calibrate"}).wait(); },
            .start_gathers =
                [own](int calls) {
                  const auto& segments = own->many_->segments;
                  for (std::size_t call = 0; call < static_cast<std::size_t>(calls); ++call)
                    own->started_.push_back(gather(own->part_, segments[call % segments.size()]));
                },
            .last_gather_ended = [own] { return own->started_.back().test(); },
            .wait = [own] { own->wait(); },
            .free_buffers =
                [own] {
                  own->few_.reset();
                  own->many_.reset();
                }};
  }

 private:
  using Segments = std::vector<comm::Segment<float>>;
  /// The buffers of the calls of a case.
  struct Calls {
    Calls(Comm& part, std::int64_t bytes)
        : buffers(bytes, part.rank(), part.size(), [&](std::int64_t size) { return comm::shared_memory(part, size); }) {
      for (int call = 0; call < buffers.calls(); ++call) segments.push_back(buffers.apart(call));
    }
    CollectiveBuffers<typename Comm::Device> buffers;
    std::vector<Segments> segments;
  };

  static comm::Pending<Comm> gather(Comm& part, const Segments& segments) {
    return comm::all_gather(part, segments, {"calibrate"});
  }
  static comm::Pending<Comm> scatter(Comm& part, const Segments& segments) {
    return comm::reduce_scatter<float>(part, segments, Write::overwrite, {"calibrate"});
  }
  /// If the device has queues, calls are enqueued one after the other, as in a step.
  void run(const Calls& calls, comm::Pending<Comm> (*collective)(Comm&, const Segments&)) {
    for (const Segments& segments : calls.segments) {
      started_.push_back(collective(part_, segments));
      if constexpr (!Comm::Device::overlaps) started_.back().wait();
    }
    wait();
  }
  void wait() {
    for (auto& each : started_) each.wait();
    started_.clear();
  }

  Comm part_;
  std::optional<Calls> few_, many_;
  std::vector<comm::Pending<Comm>> started_;
};

}  // namespace fsdp::calibrate
