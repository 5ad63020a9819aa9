// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera bench comm`: a backend's collectives against plain copies with as many concurrent threads, and against
/// MPI's own collectives.
#pragma once

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

/// All memory that the collectives of one rank need: float tensors, one for each call of a sample, cut into nearly
/// equal pieces. Since each call has its own tensor, the tensor is not in the caches, as in a training step.
class CollectiveBuffers {
 public:
  /// `memory(bytes)` returns a communicator's shared memory, or nullptr.
  template <class Memory>
  CollectiveBuffers(std::int64_t bytes, int rank, int ranks, Memory memory) : CollectiveBuffers(bytes, rank, ranks) {
    const auto block = [&](std::int64_t elements) {
      const std::int64_t size = elements * calls_ * 4;
      return CpuBlock(ledger_, device::MemoryKind::scratch, size, memory(size));
    };
    full_ = block(full_stride_);
    shard_ = block(shard_stride_);
    received_ = CpuBlock(ledger_, device::MemoryKind::scratch, received_stride_ * calls_ * 4, nullptr);
    touch();
  }
  CollectiveBuffers(const CollectiveBuffers&) = delete;
  CollectiveBuffers& operator=(const CollectiveBuffers&) = delete;

  int calls() const { return calls_; }
  std::int64_t bytes() const { return elements_ * 4; }  ///< of one tensor
  std::int64_t own_bytes() const { return counts_[rank_] * 4; }
  /// Returns segments whose local piece lies outside of the full tensor, as a shard at rest does.
  std::vector<comm::Segment<float>> apart(int call) const { return {{shard(call), full(call), counts_}}; }
  /// Returns segments whose local piece lies in its place in the full tensor.
  std::vector<comm::Segment<float>> in_place(int call) const { return {{full(call) + begin_, full(call), counts_}}; }
  /// Returns an exchange of the full tensor's pieces: each rank receives its own of all ranks, in other memory.
  std::vector<comm::Exchange<float>> exchange(int call) const {
    return {{full(call), counts_, received(call), received_counts_}};
  }
  std::int64_t exchanged_bytes() const { return own_bytes() * std::ssize(counts_); }  ///< that this rank receives
  /// Returns the full tensor for equal pieces, which MPI's collectives need: up to ranks - 1 elements are left out.
  std::span<float> whole(int call) const { return {full(call), equal_piece() * counts_.size()}; }
  std::span<float> piece(int call) const { return {shard(call), equal_piece()}; }

 private:
  CollectiveBuffers(std::int64_t bytes, int rank, int ranks);
  float* full(int call) const { return reinterpret_cast<float*>(full_.data()) + call * full_stride_; }
  float* received(int call) const { return reinterpret_cast<float*>(received_.data()) + call * received_stride_; }
  float* shard(int call) const { return reinterpret_cast<float*>(shard_.data()) + call * shard_stride_; }
  std::size_t equal_piece() const { return static_cast<std::size_t>(elements_) / counts_.size(); }
  /// Writes all memory once, so that every page is really allocated.
  void touch();

  std::int64_t elements_;
  int calls_;
  std::size_t rank_;
  std::vector<std::int64_t> counts_, received_counts_;
  std::int64_t begin_ = 0;
  /// Elements from one call's tensor to the next.
  std::int64_t full_stride_ = 0, shard_stride_ = 0, received_stride_ = 0;
  device::Ledger ledger_;
  CpuBlock full_, shard_, received_;
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
  CollectiveBuffers buffers;
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

/// Runs all cases of one size alternately and prints their lines.
template <class Comm>
void measure_collectives(const BenchOptions& options, std::list<CommWay<Comm>>& ways, int threads) {
  Comm& communicator = *ways.front().communicator;
  const CollectiveBuffers& buffers = ways.front().buffers;
  const int calls = buffers.calls();
  Copies copies(buffers.bytes() * calls, threads);
  Rounds rounds;
  const auto add = [&](auto body) {
    return rounds.add([body, calls] {
      for (int call = 0; call < calls; ++call) body(call);
    });
  };
  const std::size_t copy_case = add([&](int call) { copies.run(call * buffers.bytes(), buffers.bytes()); });
  for (CommWay<Comm>& way : ways) way.add_cases(add);
  std::optional<std::size_t> library_gather, library_scatter;
  if constexpr (requires { communicator.library_all_gather(buffers.piece(0), buffers.whole(0)); }) {
    library_gather = add([&](int call) { communicator.library_all_gather(buffers.piece(call), buffers.whole(call)); });
    library_scatter =
        add([&](int call) { communicator.library_reduce_scatter(buffers.whole(call), buffers.piece(call)); });
  }
  rounds.run(options.repeats, [&] { comm::barrier(communicator, {"bench"}); });
  comm::reduce(communicator, rounds.samples(), comm::Reduction::max, {"bench"});
  if (communicator.rank() != 0) return;

  const auto print = [&](const CommWay<Comm>& way, const char* op, std::size_t op_case, std::int64_t moved,
                         std::optional<std::size_t> library) {
    const double scale = static_cast<double>(calls) * 1e-9;
    const auto copied = static_cast<double>(buffers.bytes());
    Line line("comm");
    line.add("backend", policy_text<Comm>())
        .add("way", way.name)
        .add("op", op)
        .add("bytes", buffers.bytes())
        .add("ranks", communicator.size())
        .add("threads", threads)
        .add("ms", rounds.median_seconds(op_case) / calls * 1e3)
        .add("gb_per_second", static_cast<double>(moved) * scale / rounds.median_seconds(op_case))
        .add("memcpy_gb_per_second", copied * scale / rounds.median_seconds(copy_case))
        .add("ratio", rounds.median_of([&](std::size_t round) {
          return static_cast<double>(moved) / copied * rounds.seconds(copy_case, round) /
                 rounds.seconds(op_case, round);
        }));
    if (library)
      line.add("library_ms", rounds.median_seconds(*library) / calls * 1e3)
          .add("ratio_to_library", rounds.median_ratio(*library, op_case));
    line.print();
  };
  for (const CommWay<Comm>& way : ways) {
    print(way, "all_gather", way.gather, buffers.bytes(), library_gather);
    print(way, "reduce_scatter", way.scatter, buffers.bytes(), library_scatter);
    print(way, "all_reduce", way.reduce, 2 * buffers.bytes() - buffers.own_bytes(), {});
    print(way, "all_to_all", way.exchange, buffers.exchanged_bytes(), {});
  }
}

template <class Comm>
int measure_comm(const BenchOptions& options) {
  return train::launch<Comm>(options.launch, [&options](Comm& communicator) {
    const int threads = comm::rank_threads(options.launch.threads, communicator.size());
    train::use_threads(threads);
    // If the communicator has shared windows, measures it without them as well.
    std::int64_t has_windows = comm::shared_memory(communicator, 1) != nullptr;
    comm::reduce(communicator, std::span<std::int64_t>(&has_windows, 1), comm::Reduction::min, {"bench"});
    comm::Options& run_time = communicator.monitor().options;
    const bool asked_for = std::exchange(run_time.windows, false);
    Comm messages = comm::split(communicator, [](int) { return 0; });
    run_time.windows = asked_for;
    for (const std::int64_t bytes : collective_bytes(options)) {
      const auto shared = [&](std::int64_t size) { return comm::shared_memory(communicator, size); };
      const auto own = [](std::int64_t) { return nullptr; };
      std::list<CommWay<Comm>> ways;
      if (has_windows != 0) {
        ways.emplace_back("windows", communicator, bytes, shared);
        ways.emplace_back("messages", messages, bytes, own);
      } else {
        ways.emplace_back(std::nullopt, communicator, bytes, own);
      }
      measure_collectives(options, ways, threads);
    }
  });
}

}  // namespace fsdp::bench
