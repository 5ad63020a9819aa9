// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera bench comm`: a backend's collectives against plain copies with as many concurrent threads, and against
/// MPI's own collectives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/program.hpp>

#include "../cli/bench_options.hpp"
#include "floors.hpp"
#include "lines.hpp"
#include "rounds.hpp"

namespace fsdp::bench {

/// Returns the sizes in bytes of the collectives to measure: --bytes, or 1 MiB, 16 MiB and 64 MB.
std::vector<std::int64_t> collective_bytes(const BenchOptions& options);

/// Returns the number of calls in one sample: enough for some milliseconds.
int calls_per_sample(std::int64_t bytes);

/// How the float tensors of one rank's collectives are cut: one tensor for each call of a sample, in nearly equal
/// pieces. Since each call has its own tensor, it is not in the caches, as in a training step.
class CollectiveSizes {
 public:
  CollectiveSizes(std::int64_t bytes, int rank, int ranks);

  int calls() const { return calls_; }
  std::int64_t bytes() const { return elements_ * 4; }  ///< of one tensor
  std::int64_t own_bytes() const { return counts_[rank_] * 4; }
  std::int64_t exchanged_bytes() const { return own_bytes() * std::ssize(counts_); }  ///< that this rank receives

 protected:
  std::int64_t elements_;
  int calls_;
  std::size_t rank_;
  std::vector<std::int64_t> counts_, received_counts_;
  std::int64_t begin_ = 0;
  /// Elements from one call's tensor to the next.
  std::int64_t full_stride_ = 0, shard_stride_ = 0, received_stride_ = 0;
};

/// All memory that they need.
template <class Device>
class CollectiveBuffers : public CollectiveSizes {
 public:
  /// `memory(bytes)` returns a communicator's shared memory, or nullptr.
  template <class Memory>
  CollectiveBuffers(std::int64_t bytes, int rank, int ranks, Memory memory) : CollectiveSizes(bytes, rank, ranks) {
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

  /// Returns segments whose local piece lies outside of the full tensor, as a shard at rest does.
  std::vector<comm::Segment<float>> apart(int call) const { return {{shard(call), full(call), counts_}}; }
  /// Returns segments whose local piece lies in its place in the full tensor.
  std::vector<comm::Segment<float>> in_place(int call) const { return {{full(call) + begin_, full(call), counts_}}; }
  /// Returns an exchange of the full tensor's pieces: each rank receives its own of all ranks, in other memory.
  std::vector<comm::Exchange<float>> exchange(int call) const {
    return {{full(call), counts_, received(call), received_counts_}};
  }
  /// Returns the full tensor for equal pieces, which MPI's collectives need: up to ranks - 1 elements are left out.
  std::span<float> whole(int call) const { return {full(call), equal_piece() * counts_.size()}; }
  std::span<float> piece(int call) const { return {shard(call), equal_piece()}; }

 private:
  using Block = device::Block<Device>;

  float* full(int call) const { return reinterpret_cast<float*>(full_.data()) + call * full_stride_; }
  float* received(int call) const { return reinterpret_cast<float*>(received_.data()) + call * received_stride_; }
  float* shard(int call) const { return reinterpret_cast<float*>(shard_.data()) + call * shard_stride_; }
  std::size_t equal_piece() const { return static_cast<std::size_t>(elements_) / counts_.size(); }
  /// Writes all memory once, so that every page is really allocated. Zero stays zero, however often it is summed.
  void touch() {
    for (const Block* block : {&full_, &shard_, &received_}) std::fill_n(block->data(), block->bytes(), std::byte{0});
  }

  device::Ledger ledger_;
  Block full_, shard_, received_;
};

/// One way to transfer data: a communicator, and the cases of its collectives.
template <class Comm>
struct CommWay {
  /// `memory(bytes)` returns shared memory, or nullptr.
  template <class Memory>
  CommWay(std::optional<std::string_view> way, Comm& comm, std::int64_t bytes, Memory memory)
      : name(way), communicator(&comm), buffers(bytes, comm.rank(), comm.size(), memory) {}

  std::optional<std::string_view> name;  ///< "windows" or "messages"; empty where there is one way only
  Comm* communicator;
  CollectiveBuffers<typename Comm::Device> buffers;
  std::size_t gather = 0, scatter = 0, reduce = 0, exchange = 0;

  template <class Add>
  void add_cases(const Add& add) {
    std::vector<std::vector<comm::Segment<float>>> apart, in_place;
    std::vector<std::vector<comm::Exchange<float>>> exchanges;
    for (int call = 0; call < buffers.calls(); ++call) {
      exchanges.push_back(buffers.exchange(call));
      apart.push_back(buffers.apart(call));
      in_place.push_back(buffers.in_place(call));
    }
    const auto of = [](const auto& list, int call) -> const auto& { return list[static_cast<std::size_t>(call)]; };
    gather = add([=, this](int call) { comm::all_gather(*communicator, of(apart, call)).wait(); });
    scatter = add(
        [=, this](int call) { comm::reduce_scatter<float>(*communicator, of(apart, call), Write::overwrite).wait(); });
    reduce = add([=, this](int call) { comm::all_reduce<float>(*communicator, of(in_place, call)).wait(); });
    exchange = add([=, this](int call) { comm::all_to_all(*communicator, of(exchanges, call)).wait(); });
  }
};

/// `tessera bench comm`. Defined for communicators on the CPU (on_threads.cpp and on_mpi.cpp).
template <class Comm>
int measure_comm(const BenchOptions& options);

}  // namespace fsdp::bench
