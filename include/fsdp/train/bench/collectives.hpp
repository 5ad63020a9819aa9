// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera bench comm`: a backend's collectives against plain copies by as many threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
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
  CollectiveBuffers(std::int64_t bytes, int rank, int ranks);

  std::int64_t bytes() const { return elements_ * 4; }
  std::int64_t own_bytes() const { return counts_[rank_] * 4; }
  /// This rank's piece lies apart from the whole, as a shard at rest does.
  std::vector<comm::Segment<float>> apart() const { return {{data(shard_), data(full_), counts_}}; }
  /// This rank's piece lies in its place.
  std::vector<comm::Segment<float>> in_place() const { return {{data(full_) + begin_, data(full_), counts_}}; }

 private:
  static float* data(const CpuBlock& block) { return reinterpret_cast<float*>(block.data()); }

  std::int64_t elements_;
  std::size_t rank_;
  std::vector<std::int64_t> counts_;
  std::int64_t begin_ = 0;
  device::Ledger ledger_;
  CpuBlock full_, shard_;
};

/// Calls of one sample: enough for some milliseconds.
int calls_per_sample(std::int64_t bytes);

template <class Comm>
int measure_comm(const BenchOptions& options) {
  return launch<Comm>(options.stack, [&options](Comm& communicator) {
    const int threads = rank_threads(options.stack, communicator);
    use_threads(threads);
    for (const std::int64_t bytes : collective_bytes(options)) {
      const CollectiveBuffers buffers(bytes, communicator.rank(), communicator.size());
      const auto apart = buffers.apart();
      const auto in_place = buffers.in_place();
      Copies copies(buffers.bytes(), threads);
      const int calls = calls_per_sample(bytes);
      Rounds rounds;
      const auto add = [&](auto call) {
        return rounds.add([call, calls] {
          for (int i = 0; i < calls; ++i) call();
        });
      };
      const std::size_t copy_case = add([&] { copies.run(); });
      const std::size_t gather_case = add([&] { comm::all_gather(communicator, apart).wait(); });
      const std::size_t scatter_case =
          add([&] { comm::reduce_scatter<float>(communicator, apart, Write::overwrite).wait(); });
      const std::size_t reduce_case = add([&] { comm::all_reduce<float>(communicator, in_place).wait(); });
      rounds.run(options.repeats, [&] { comm::barrier(communicator, {"bench"}); });
      comm::reduce(communicator, rounds.samples(), comm::Reduction::max, {"bench"});
      if (communicator.rank() != 0) continue;

      const auto print = [&](const char* op, std::size_t op_case, std::int64_t moved) {
        const double scale = static_cast<double>(calls) * 1e-9;
        const auto copied = static_cast<double>(buffers.bytes());
        const CommLine line{.backend = std::string(Comm::name),
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
        std::printf("%s\n", json_line(line).c_str());
      };
      print("all_gather", gather_case, buffers.bytes());
      print("reduce_scatter", scatter_case, buffers.bytes());
      print("all_reduce", reduce_case, 2 * buffers.bytes() - buffers.own_bytes());
    }
  });
}

}  // namespace fsdp::train::bench
