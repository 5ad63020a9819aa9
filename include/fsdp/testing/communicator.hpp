// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suites of a communicator: all behaviours of its contract in all cases, and all faults.
///
///     using namespace fsdp::testing;
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, CommunicatorSuite, mine::Ranks);
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, CommunicatorFaults, mine::Ranks);
///
/// mine::Ranks is the communicator, or any type, with `static int run(int ranks, const comm::Options&, f)`, which calls
/// f(communicator) on every rank and rethrows the error of the first rank that failed. Checks keep their values in host
/// memory; for another device, `run` may set ValueMemory (values.hpp) around f. If a launcher has started the ranks,
/// `run` may split them and return at once on the ranks that are not needed. CommunicatorFaults cannot be used in that
/// case, because faults terminate ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/testing/behaviours.hpp>
#include <tessera/fsdp/testing/contract_behaviours.hpp>
#include <tessera/fsdp/testing/faults.hpp>
#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::testing {

/// A configuration in which a behaviour is checked.
struct Case {
  std::string in_words;
  int ranks = 1;
  comm::Options options = {};
  bool part = false;  ///< whether to split into ranks 0 to 2 and the others, and run on each of both communicators
};

/// Returns the cases: numbers of ranks that reveal different mistakes, a case with checks enabled, one with a split,
/// and one with ranks that arrive in random order.
inline std::vector<Case> communicator_cases() {
  std::vector<Case> cases;
  for (const int ranks : {1, 2, 3, 4, 8}) cases.push_back({.in_words = message(ranks, " ranks"), .ranks = ranks});
  cases.push_back({.in_words = "3 ranks, monitor().options.checks on", .ranks = 3, .options = {.checks = true}});
  cases.push_back({.in_words = "5 ranks, split into ranks 0 to 2 and ranks 3 to 4", .ranks = 5, .part = true});
  cases.push_back({.in_words = "4 ranks, each late by up to 0.3 ms before each collective (comm::random_delays)",
                   .ranks = 4,
                   .options = {.before = comm::random_delays(7, std::chrono::microseconds(300))}});
  return cases;
}

/// The requirement on `run` itself.
inline constexpr const char* run_asked =
    "run(ranks, options, f) calls f(communicator) on as many ranks as it is told; it may leave a case out";

/// A list of behaviours. A communicator's `run` is compiled once for the whole list.
template <class... Behaviours>
struct BehaviourList {
  /// Returns the place of a behaviour in the list.
  template <class Behaviour>
  static constexpr std::size_t place() {
    static_assert((std::is_same_v<Behaviour, Behaviours> || ...));
    std::size_t place = 0;
    void((... || (std::is_same_v<Behaviour, Behaviours> || (++place, false))));
    return place;
  }

  /// Runs behaviour number `which` in one case. Returns the number of ranks of this process on which it ran. An error
  /// of a rank is a failure.
  template <class Ranks>
  static int check(std::size_t which, const Case& how) {
    constexpr const char* asked[] = {Behaviours::asked...};
    std::atomic<int> called = 0;
    const auto check = [which](auto& c) {
      std::size_t i = 0;
      ((i++ == which ? Behaviours::check(c) : void()), ...);
    };
    try {
      Ranks::run(how.ranks, how.options, [&](auto& c) {
        static_assert(comm::check_communicator<std::remove_cvref_t<decltype(c)>>());
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, how.in_words);
        ++called;
        if (!expect_value(run_asked, c, "the number of ranks", int{c.size()}, how.ranks)) return;
        if (!how.part) return check(c);
        auto part = comm::split(c, [](int rank) { return rank < 3 ? 0 : 1; });
        check(part);
      });
    } catch (const std::exception& error) {
      fail(asked[which], how.in_words, "the ranks ended with an error: ", error.what());
    }
    return called;
  }
  /// Runs behaviour number `which` in all cases, until one fails.
  template <class Ranks>
  static void check(std::size_t which) {
    int called = 0;
    for (const Case& how : communicator_cases()) {
      called += check<Ranks>(which, how);
      if (::testing::Test::HasFailure()) return;
    }
    if (called == 0) fail(run_asked, "all cases", "f was called in none of them");
  }
};

/// Runs one behaviour in one case, as a list of behaviours does.
template <class Ranks, class Behaviour>
int check_behaviour(const Case& how) {
  return BehaviourList<Behaviour>::template check<Ranks>(0, how);
}
/// Runs one behaviour in all cases, until one fails.
template <class Ranks, class Behaviour>
void check_behaviour() {
  BehaviourList<Behaviour>::template check<Ranks>(0);
}

/// The base class of both suites. The parameter may provide a fixture: `using Fixture = ...`.
template <class Ranks>
struct FixtureOf {
  using Type = ::testing::Test;
};
template <class Ranks>
requires requires { typename Ranks::Fixture; }
struct FixtureOf<Ranks> {
  using Type = typename Ranks::Fixture;
};

template <class Ranks>
class CommunicatorSuite : public FixtureOf<Ranks>::Type {};

using CheckedBehaviours = BehaviourList<FSDP_BEHAVIOURS>;
#define FSDP_BEHAVIOUR(_, behaviour) \
  , (behaviour, CheckedBehaviours::check<TypeParam>(CheckedBehaviours::place<fsdp::testing::behaviour>()))
FSDP_SUITE(CommunicatorSuite FSDP_EACH(FSDP_BEHAVIOUR, , FSDP_BEHAVIOURS));
#undef FSDP_BEHAVIOUR

template <class Ranks>
class CommunicatorFaults : public FixtureOf<Ranks>::Type {};

#define FSDP_FAULT(_, fault) , (fault, fsdp::testing::fault::check<TypeParam>())
FSDP_SUITE(CommunicatorFaults FSDP_EACH(FSDP_FAULT, , ARankThatDoesNotComeIsNamedAtTheDeadline,
                                        AThrowingRankFreesTheOthers, AFailureReachesCommunicatorsThatWereSplit,
                                        ASplitCommunicatorNamesRanksOfTheWholeJob,
                                        UnwindingWithCollectivesInFlightNeitherHangsNorThrows,
                                        ARankMissingFromAnExchangeIsNamedAtTheDeadline,
                                        ARankThatFailsDuringAnExchangeFreesTheOthers));
#undef FSDP_FAULT

}  // namespace fsdp::testing
