// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the benches shard with, and rounds of several ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sharded.hpp>

#include "../../src/program/bench/rounds.hpp"

namespace fsdp::bench {

using Comm = comm::Threads<>;
using Shards = Sharded<Stack<FullyShard<>, Comm, Fp32>>;

/// Binds the calling thread to the core `number` of those that the process may use, so that ranks never share one. Does
/// nothing where there are fewer.
void bind_to_core(int number);

/// Runs f(communicator) on ranks of one thread, each on a core of its own.
template <class F>
void on_ranks(std::int64_t ranks, F f) {
  Comm::run(static_cast<int>(ranks), {.threads = 1}, [&f](Comm& communicator) {
    bind_to_core(communicator.rank());
    f(communicator);
  });
}

/// Adds a case of well below a millisecond. Before each sample its thread rests and then runs it once untimed, so that
/// on a shared machine the sample fits into the time that the system gives a thread that has waited, with warm caches.
inline std::size_t add_short(Rounds& rounds, std::function<void()> body) {
  return rounds.add(body, [body] {
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    body();
  });
}

/// Runs the rounds with a barrier before every case. Of each sample, the slowest rank's is then every rank's.
inline void run_together(Comm& communicator, Rounds& rounds, std::int64_t count) {
  rounds.run(count, [&] { comm::barrier(communicator, {"bench"}); });
  comm::reduce(communicator, rounds.samples(), comm::Reduction::max, {"bench"});
}

}  // namespace fsdp::bench
