// SPDX-License-Identifier: Apache-2.0
#include "foreign.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <thread>

namespace fsdp::bench::foreign {
namespace {

/// Binds the calling thread to core `number` of the cores that the process may use. Does nothing if there are fewer
/// cores.
void bind_to_core(int number) {
  cpu_set_t allowed, one;
  CPU_ZERO(&allowed);
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed) && number-- == 0) CPU_SET(core, &one);
  if (CPU_COUNT(&one) == 1) sched_setaffinity(0, sizeof(one), &one);
}

}  // namespace

void on_ranks(std::int64_t ranks, const std::function<void(Comm&)>& f) {
  Comm::run(static_cast<int>(ranks), {.threads = 1}, [&f](Comm& communicator) {
    bind_to_core(communicator.rank());
    f(communicator);
  });
}

void add_short(Rounds& rounds, const std::function<void()>& body) {
  rounds.add(body, [body] {
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    body();
  });
}

void run_together(Comm& communicator, Rounds& rounds, std::int64_t count) {
  rounds.run(count, [&] { comm::barrier(communicator, {"bench"}); });
  comm::reduce(communicator, rounds.samples(), comm::Reduction::max, {"bench"});
}

Exchange::Exchange(Comm& communicator, const std::function<void()>& step) : communicator_(communicator) {
  comm::Monitor& monitor = communicator.monitor();
  const std::size_t first = monitor.records.size();
  monitor.options.record = true;
  step();
  monitor.options.record = false;
  const int ranks = communicator_.size();
  std::int64_t largest = 0, shards = 0;
  for (const comm::Record& record : std::span(monitor.records).subspan(first)) {
    const bool gathers = record.op == comm::Op::all_gather;
    if (!gathers && record.op != comm::Op::reduce_scatter) continue;  // skips small values of the step's control
    Call& call = calls_.emplace_back(Call{.gathers = gathers, .counts = {}, .begin = shards});
    const std::int64_t elements = record.bytes / 4, piece = (elements + ranks - 1) / ranks;
    for (int rank = 0; rank < ranks; ++rank)
      call.counts.push_back(std::clamp<std::int64_t>(elements - rank * piece, 0, piece));
    largest = std::max(largest, elements);
    shards += (piece + 15) / 16 * 16;
    bytes_ += record.bytes;
  }
  shards_.assign(static_cast<std::size_t>(shards), 0.0f);
  full_.assign(static_cast<std::size_t>(2 * largest), 0.0f);
}

void Exchange::run() {
  std::size_t turn = 0;
  for (const Call& call : calls_) {
    float* const full = full_.data() + (++turn % 2) * (full_.size() / 2);
    const std::array<comm::Segment<float>, 1> segments{
        {{.local = shards_.data() + call.begin, .full = full, .counts = call.counts}}};
    if (call.gathers)
      comm::all_gather(communicator_, segments, {"bench"}).wait();
    else
      comm::reduce_scatter<float>(communicator_, segments, Write::overwrite, {"bench"}, comm::Contributions::spent)
          .wait();
  }
}

}  // namespace fsdp::bench::foreign
