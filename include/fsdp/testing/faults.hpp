// SPDX-License-Identifier: Apache-2.0
/// @file
/// Required behaviour of communicators if a rank fails or does not arrive: no rank waits forever, and errors identify
/// the rank.
///
/// A fault is a struct with `asked` and `check<Ranks>()`. Ranks has `run(ranks, options, f)`; its ranks are threads of
/// this process, or processes whose failed assertions `run` reports. communicator.hpp makes a suite of the faults.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/testing/exchange_behaviours.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/values.hpp>

namespace fsdp::testing {

namespace detail {

using Clock = std::chrono::steady_clock;

/// The longest time that a fault check waits. With an incorrect communicator, the check then fails instead of hanging.
inline constexpr std::chrono::seconds patience{10};

inline double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

/// Waits until `holds()` returns true, but not longer than `patience`.
void wait_until(auto holds) {
  for (const auto begin = Clock::now(); !holds() && Clock::now() - begin < patience;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Calls barrier(c) until it throws, but not longer than `patience`.
void barriers(auto& c) {
  for (const auto begin = Clock::now(); Clock::now() - begin < patience;) comm::barrier(c);
}

/// Runs f on ranks, one of which throws InputError(`reason`). Checks that the run ends with this error. Returns its
/// duration in seconds.
template <class Ranks, class F>
double run_to_failure(std::string_view asked, int ranks, std::string_view reason, F f) {
  const auto begin = Clock::now();
  const std::string where = message(ranks, " ranks");
  const std::string text =
      expect_error<InputError>(asked, where, "the run of all ranks, of which one fails with an InputError",
                               [&] { Ranks::run(ranks, comm::Options{}, f); });
  if (!text.empty()) expect_part(asked, where, text, reason);
  return seconds(Clock::now() - begin);
}

/// Checks that a run did not wait for the deadline.
inline void expect_prompt(std::string_view asked, int ranks, double took, std::string_view more = "") {
  if (took > seconds(patience) / 2) fail(asked, message(ranks, " ranks"), "it took ", took, " s", more);
}

/// Runs f on ranks, some of which miss a deadline of 0.1 s. The run itself may report the missed deadline too.
template <class Ranks, class F>
void run_past_deadline(int ranks, F f) {
  try {
    Ranks::run(ranks, comm::Options{.deadline = std::chrono::milliseconds(100)}, f);
  } catch (const comm::CollectiveError&) {
  }
}

/// Calls call(c) on ranks 0 and 2 of 3, to which rank 1 does not come. Checks that both errors name it and `label`.
/// Returns the longest time that a rank waited, in seconds. Does nothing for communicators that `call` does not take.
template <class Ranks, class Call>
double miss_rank_1(const char* asked, std::string_view which, const std::string& label, Call call) {
  std::atomic<int> ended = 0;
  std::array<double, 3> waited{};
  run_past_deadline<Ranks>(3, [&]<class C>(C& c) {
    if constexpr (std::is_invocable_v<Call, C&>) {
      const auto all_ended = [&] { wait_until([&] { return ended == 2; }); };
      if (c.rank() == 1) return all_ended();
      const auto begin = Clock::now();
      expect_collective_error(
          asked, c, which, [&] { call(c); }, {"rank 1", label},
          [&] {
            waited[static_cast<std::size_t>(c.rank())] = seconds(Clock::now() - begin);
            ++ended;
            all_ended();  // so that no error identifies a rank that has ended
          });
    }
  });
  return std::max(waited[0], waited[2]);
}

}  // namespace detail

struct ARankThatDoesNotComeIsNamedAtTheDeadline {
  static constexpr const char* asked =
      "where a rank does not come to a collective, the others throw a CollectiveError at monitor().options.deadline "
      "that names the rank and the collective";
  template <class Ranks>
  static void check() {
    const double longest =
        detail::miss_rank_1<Ranks>(asked, "a barrier to which rank 1 does not come", "barrier of step, unit 4",
                                   [](auto& c) { comm::barrier(c, {.what = "step", .unit = 4}); });
    if (longest < 0.1 || longest > detail::seconds(detail::patience) / 2)
      fail(asked, "3 ranks", "ranks 0 and 2 waited for ", longest, " s, with a deadline of 0.1 s");
  }
};

struct AThrowingRankFreesTheOthers {
  static constexpr const char* asked =
      "where a rank throws, collectives of the others throw a CollectiveError that names it, and the run ends with "
      "the error that it threw";
  template <class Ranks>
  static void check() {
    std::atomic<int> freed = 0;
    const double took = detail::run_to_failure<Ranks>(asked, 4, "no such file", [&](auto& c) {
      comm::barrier(c);
      if (c.rank() == 2) throw InputError("no such file");
      const std::string text =
          expect_collective_error(asked, c, "a barrier after rank 2 has thrown", [&] { comm::barrier(c); }, {"rank 2"});
      if (text.empty()) return;
      ++freed;
      throw comm::CollectiveError(text);
    });
    expect_value(asked, "4 ranks", "the number of ranks that were told", freed.load(), 3);
    detail::expect_prompt(asked, 4, took, "; they must not wait for the deadline");
  }
};

struct AFailureReachesCommunicatorsThatWereSplit {
  static constexpr const char* asked =
      "where a rank throws, collectives of communicators that were split from the one of all ranks throw a "
      "CollectiveError that names the rank, also on ranks that share no part with it";
  template <class Ranks>
  static void check() {
    std::atomic<int> told = 0;
    detail::run_to_failure<Ranks>(asked, 4, "ends alone", [&](auto& c) {
      auto part = comm::split(c, [](int rank) { return rank % 2; });
      if (c.rank() == 3) throw InputError("ends alone");
      expect_collective_error(
          asked, c, "barriers of the ranks with the same rank % 2", [&] { detail::barriers(part); }, {"rank 3"},
          [&] {
            ++told;
            detail::wait_until([&] { return told == 3; });  // so that no error identifies a rank that has ended
          });
    });
  }
};

struct ASplitCommunicatorNamesRanksOfTheWholeJob {
  static constexpr const char* asked =
      "errors of a communicator that was split, and split again, name ranks by their numbers in the whole job";
  template <class Ranks>
  static void check() {
    std::atomic<bool> over = false;
    detail::run_past_deadline<Ranks>(4, [&](auto& c) {
      auto odd = comm::split(c, [](int rank) { return rank % 2; });
      auto nested = comm::split(odd, [](int) { return 0; });
      if (c.rank() != 1) return detail::wait_until([&] { return over.load(); });
      expect_collective_error(
          asked, c, "a barrier of ranks 1 and 3 of the job to which rank 3 does not come",
          [&] { comm::barrier(nested); }, {"rank 1, barrier", "for rank 3"}, [&] { over = true; });
    });
  }
};

struct UnwindingWithCollectivesInFlightNeitherHangsNorThrows {
  static constexpr const char* asked =
      "a rank that throws while collectives are in flight destroys their requests without waiting for the deadline "
      "and without a second exception";
  template <class Ranks>
  static void check() {
    const double took = detail::run_to_failure<Ranks>(asked, 2, "while two are in flight", [](auto& c) {
      const Counts counts{1 << 18, 1 << 18};
      Floats weights(1 << 19), shard(1 << 18), gradients(1 << 19), sum(1 << 18);
      const auto first = comm::all_gather(c, one_segment(shard.data(), weights.data(), counts));
      const auto second =
          comm::reduce_scatter<float>(c, one_segment(sum.data(), gradients.data(), counts), Write::overwrite);
      if (c.rank() == 1) throw InputError("while two are in flight");
    });
    detail::expect_prompt(asked, 2, took);
  }
};

struct ARankMissingFromAnExchangeIsNamedAtTheDeadline {
  static constexpr const char* asked =
      "where a rank does not come to an all_to_all, the others throw a CollectiveError at monitor().options.deadline "
      "that names the rank and the collective";
  template <class Ranks>
  static void check() {
    detail::miss_rank_1<Ranks>(asked, "an all_to_all to which rank 1 does not come", "all_to_all of heads, unit 4",
                               [](comm::ExchangingCommunicator auto& c) {
                                 ExchangedValues<float> values(c.rank(), c.size(), 9);
                                 comm::all_to_all(c, values.list(), {.what = "heads", .unit = 4}).wait();
                               });
  }
};

/// Frees memory of the failing rank while peers may be reading it.
struct ARankThatFailsDuringAnExchangeFreesTheOthers {
  static constexpr const char* asked =
      "where a rank throws while an all_to_all is in flight, its memory is freed after peers have read it, and "
      "collectives of the others throw a CollectiveError that names it";
  template <class Ranks>
  static void check() {
    const double took = detail::run_to_failure<Ranks>(asked, 3, "while pieces are in flight", [&]<class C>(C& c) {
      if constexpr (comm::ExchangingCommunicator<C>) {
        ExchangedValues<float> values(c.rank(), c.size(), 1 << 16);
        auto pending = comm::all_to_all(c, values.list());
        if (c.rank() == 2) throw InputError("while pieces are in flight");
        throw comm::CollectiveError(expect_collective_error(asked, c,
                                                            "an all_to_all in flight while rank 2 throws, and barriers",
                                                            [&] { pending.wait(), detail::barriers(c); }, {"rank 2"}));
      } else {
        throw InputError("while pieces are in flight");
      }
    });
    detail::expect_prompt(asked, 3, took);
  }
};

}  // namespace fsdp::testing
