// SPDX-License-Identifier: Apache-2.0
/// @file
/// `comm`: a backend's collectives compared with plain copies by the same number of concurrent threads, and with MPI's
/// own collectives.
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
#include <tessera/comm/launch/cores.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/training/launch.hpp>

#include "../src/program/calibrate/links.hpp"
#include "bounds.hpp"
#include "lines.hpp"
#include "options.hpp"

namespace fsdp::bench {

/// Runs the rounds with a barrier before every case. Afterwards, each sample is the time of the slowest rank, on all
/// ranks.
template <class Comm>
void run_rounds(Comm& communicator, Rounds& rounds, std::int64_t repeats) {
  rounds.run(repeats, [&] { comm::barrier(communicator, {"bench"}); });
  comm::reduce(communicator, rounds.samples(), comm::Reduction::max, {"bench"});
}

/// One transport of a communicator, and the cases of its collectives.
template <class Comm>
struct CommWay {
  /// `memory(bytes)` returns shared memory, or nullptr.
  template <class Memory>
  CommWay(std::optional<std::string_view> way, Comm& comm, std::int64_t bytes, Memory memory)
      : name(way), communicator(&comm), buffers(bytes, comm.rank(), comm.size(), memory) {}

  std::optional<std::string_view> name;  ///< "windows" or "messages"; empty if there is only one
  Comm* communicator;
  calibrate::CollectiveBuffers<typename Comm::Device> buffers;
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
  const auto& buffers = ways.front().buffers;
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
  run_rounds(communicator, rounds, options.repeats);
  if (communicator.rank() != 0) return;

  const auto print = [&](const CommWay<Comm>& way, const char* op, std::size_t op_case, std::int64_t moved,
                         std::optional<std::size_t> library) {
    const double scale = static_cast<double>(calls) * 1e-9;
    const auto copied = static_cast<double>(buffers.bytes());
    Line line("comm");
    line.add("backend", policy_text<Comm>())
        .add("way", way.name, "op", op, "bytes", buffers.bytes(), "ranks", communicator.size(), "threads", threads)
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

/// `tessera_bench comm`. Returns the exit status.
template <class Comm>
int measure_comm(const BenchOptions& options) {
  return train::launch<Comm>(options.launch, [&options](Comm& communicator) {
    const int threads = comm::rank_threads(options.launch.threads, communicator.size());
    train::use_threads(threads);
    // If the communicator has shared windows, also measures it without them.
    std::int64_t has_windows = comm::shared_memory(communicator, 1) != nullptr;
    comm::reduce(communicator, std::span<std::int64_t>(&has_windows, 1), comm::Reduction::min, {"bench"});
    comm::Options& run_time = communicator.monitor().options;
    const bool asked_for = std::exchange(run_time.windows, false);
    Comm messages = comm::split(communicator, [](int) { return 0; });
    run_time.windows = asked_for;
    std::vector<std::int64_t> sizes{std::int64_t{1} << 20, std::int64_t{16} << 20, 64'000'000};
    if (options.bytes > 0) sizes = {options.bytes};
    for (const std::int64_t bytes : sizes) {
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
