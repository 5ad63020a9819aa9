// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera bench comm`: a backend's collectives against plain copies by as many threads at once, and against MPI's
/// own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/train/bench/floors.hpp>
#include <fsdp/train/bench/lines.hpp>
#include <fsdp/train/bench/rounds.hpp>
#include <fsdp/train/launch.hpp>
#include <fsdp/train/options.hpp>

namespace fsdp::train::bench {

/// Bytes of each collective: what was asked for, or 1 MiB, 16 MiB and 64 MB.
std::vector<std::int64_t> collective_bytes(const BenchOptions& options);

/// One tensor of floats cut into nearly equal pieces, and all memory that its collectives need on one rank.
class CollectiveBuffers {
 public:
  /// `memory(bytes)` is a communicator's shared memory, or nullptr.
  template <class Memory>
  CollectiveBuffers(std::int64_t bytes, int rank, int ranks, Memory memory) : CollectiveBuffers(bytes, rank, ranks) {
    full_ = {ledger_, device::MemoryKind::scratch, full_bytes(), memory(full_bytes())};
    shard_ = {ledger_, device::MemoryKind::scratch, shard_bytes(), memory(shard_bytes())};
    touch();
  }
  CollectiveBuffers(const CollectiveBuffers&) = delete;
  CollectiveBuffers& operator=(const CollectiveBuffers&) = delete;

  std::int64_t bytes() const { return elements_ * 4; }
  std::int64_t own_bytes() const { return counts_[rank_] * 4; }
  /// This rank's piece lies apart from the whole, as a shard at rest does.
  std::vector<comm::Segment<float>> apart() const { return {{data(shard_), data(full_), counts_}}; }
  /// This rank's piece lies in its place.
  std::vector<comm::Segment<float>> in_place() const { return {{data(full_) + begin_, data(full_), counts_}}; }
  /// Equal pieces, as MPI's collectives want them: up to ranks - 1 elements are left out.
  std::span<float> whole() const { return {data(full_), equal_piece() * counts_.size()}; }
  std::span<float> piece() const { return {data(shard_), equal_piece()}; }

 private:
  static float* data(const CpuBlock& block) { return reinterpret_cast<float*>(block.data()); }

  CollectiveBuffers(std::int64_t bytes, int rank, int ranks);
  std::int64_t full_bytes() const { return elements_ * 4; }
  std::int64_t shard_bytes() const { return std::max<std::int64_t>(counts_[0], 1) * 4; }
  std::size_t equal_piece() const { return static_cast<std::size_t>(elements_) / counts_.size(); }
  /// Written once, so that no page is still the system's page of zeros.
  void touch();

  std::int64_t elements_;
  std::size_t rank_;
  std::vector<std::int64_t> counts_;
  std::int64_t begin_ = 0;
  device::Ledger ledger_;
  CpuBlock full_, shard_;
};

/// Calls of one sample: enough for some milliseconds.
int calls_per_sample(std::int64_t bytes);

/// One way that data may take: a communicator, and the cases of its collectives.
template <class Comm>
struct CommWay {
  /// `memory(bytes)` is shared memory, or nullptr.
  template <class Memory>
  CommWay(const char* way, Comm& comm, std::int64_t bytes, Memory memory)
      : name(way), communicator(&comm), buffers(bytes, comm.rank(), comm.size(), memory) {}

  const char* name;  ///< "windows" or "messages"; empty where there is one way only
  Comm* communicator;
  CollectiveBuffers buffers;
  std::size_t gather = 0, scatter = 0, reduce = 0;

  template <class Add>
  void add_cases(const Add& add) {
    gather = add([this, apart = buffers.apart()] { comm::all_gather(*communicator, apart).wait(); });
    scatter = add([this, apart = buffers.apart()] {
      comm::reduce_scatter<float>(*communicator, apart, Write::overwrite).wait();
    });
    reduce = add([this, whole = buffers.in_place()] { comm::all_reduce<float>(*communicator, whole).wait(); });
  }
};

/// Runs all cases of one size in turn and prints their lines.
template <class Comm>
void measure_collectives(const BenchOptions& options, std::list<CommWay<Comm>>& ways, int threads) {
  Comm& communicator = *ways.front().communicator;
  const CollectiveBuffers& buffers = ways.front().buffers;
  const int calls = calls_per_sample(buffers.bytes());
  Copies copies(buffers.bytes(), threads);
  Rounds rounds;
  const auto add = [&](auto call) {
    return rounds.add([call, calls] {
      for (int i = 0; i < calls; ++i) call();
    });
  };
  const std::size_t copy_case = add([&] { copies.run(); });
  for (CommWay<Comm>& way : ways) way.add_cases(add);
  std::optional<std::size_t> library_gather, library_scatter;
  if constexpr (requires { communicator.library_all_gather(buffers.piece(), buffers.whole()); }) {
    library_gather = add([&] { communicator.library_all_gather(buffers.piece(), buffers.whole()); });
    library_scatter = add([&] { communicator.library_reduce_scatter(buffers.whole(), buffers.piece()); });
  }
  rounds.run(options.repeats, [&] { comm::barrier(communicator, {"bench"}); });
  comm::reduce(communicator, rounds.samples(), comm::Reduction::max, {"bench"});
  if (communicator.rank() != 0) return;

  const auto print = [&](const CommWay<Comm>& way, const char* op, std::size_t op_case, std::int64_t moved,
                         std::optional<std::size_t> library) {
    const double scale = static_cast<double>(calls) * 1e-9;
    const auto copied = static_cast<double>(buffers.bytes());
    CommLine line{.backend = std::string(Comm::name),
                  .way = way.name,
                  .op = op,
                  .bytes = buffers.bytes(),
                  .ranks = communicator.size(),
                  .threads = threads,
                  .milliseconds = rounds.median_seconds(op_case) / calls * 1e3,
                  .gb_per_second = static_cast<double>(moved) * scale / rounds.median_seconds(op_case),
                  .memcpy_gb_per_second = copied * scale / rounds.median_seconds(copy_case),
                  .ratio = rounds.median_of([&](std::size_t round) {
                    return static_cast<double>(moved) / copied * rounds.seconds(copy_case, round) /
                           rounds.seconds(op_case, round);
                  })};
    if (library) {
      line.library_milliseconds = rounds.median_seconds(*library) / calls * 1e3;
      line.ratio_to_library = rounds.median_of(
          [&](std::size_t round) { return rounds.seconds(*library, round) / rounds.seconds(op_case, round); });
    }
    std::printf("%s\n", json_line(line).c_str());
  };
  for (const CommWay<Comm>& way : ways) {
    print(way, "all_gather", way.gather, buffers.bytes(), library_gather);
    print(way, "reduce_scatter", way.scatter, buffers.bytes(), library_scatter);
    print(way, "all_reduce", way.reduce, 2 * buffers.bytes() - buffers.own_bytes(), {});
  }
}

template <class Comm>
int measure_comm(const BenchOptions& options) {
  return launch<Comm>(options.stack, [&options](Comm& communicator) {
    const int threads = rank_threads(options.stack, communicator);
    use_threads(threads);
    // Where there are windows, the same without them is measured beside.
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
        ways.emplace_back("", communicator, bytes, own);
      }
      measure_collectives(options, ways, threads);
    }
  });
}

}  // namespace fsdp::train::bench
