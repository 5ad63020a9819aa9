// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/testing/communicator.hpp>

#include <gtest/gtest.h>

#include <support/errors.hpp>
#include "failures.hpp"
#include "wrong_communicators.hpp"
#include "wrong_exchanges.hpp"

namespace fsdp::testing {
namespace {

/// Expects that one behaviour test reports this failure on four ranks.
template <class Wrong, class Behaviour>
void expect_found(std::string_view where, std::string_view found) {
  const auto messages =
      failures_of([] { check_behaviour<Wrong, Behaviour>(Case{.in_words = "the case of this test", .ranks = 4}); });
  expect_sentence(messages, Behaviour::asked, where, found);
  for (const std::string& text : messages) test::expect_parts(text, {"the case of this test"});
}

template <class Wrong, class Fault>
void expect_fault_found(std::string_view where, std::string_view found) {
  expect_sentence(failures_of([] { Fault::template check<Wrong>(); }), Fault::asked, where, found);
}

TEST(CommunicatorKit, AcceptsACorrectWrapper) {
  EXPECT_EQ(failures_of([] { check_behaviour<Right, GathersUnevenAndEmptyPieces>(); }), std::vector<std::string>{});
  EXPECT_EQ(failures_of([] { check_behaviour<Right, SumsInRankOrderToTheBit>(); }), std::vector<std::string>{});
  EXPECT_EQ(failures_of([] { check_behaviour<Right, SumsInRankOrderWhereAsked>(); }), std::vector<std::string>{});
  EXPECT_EQ(failures_of([] { check_behaviour<Right, AddsRankByRankToWhatIsThere>(); }), std::vector<std::string>{});
  EXPECT_EQ(failures_of([] { AThrowingRankFreesTheOthers::check<Right>(); }), std::vector<std::string>{});
}

TEST(CommunicatorKit, AcceptsWrappersWithAndWithoutExchanges) {
  static_assert(comm::ExchangingCommunicator<RightExchanges> && !comm::ExchangingCommunicator<Right>);
  static_assert(comm::check_communicator<RightExchanges>() && comm::check_communicator<Right>());
  const auto found = failures_of([] {
    check_behaviour<RightExchanges, ExchangesUnevenAndEmptyPieces>();
    check_behaviour<RightExchanges, ChecksFindExchangesThatDisagree>();
    ARankMissingFromAnExchangeIsNamedAtTheDeadline::check<RightExchanges>();
    check_behaviour<Right, ExchangesUnevenAndEmptyPieces>();
    check_behaviour<Right, ChecksFindExchangesThatDisagree>();
    ARankMissingFromAnExchangeIsNamedAtTheDeadline::check<Right>();
    ARankThatFailsDuringAnExchangeFreesTheOthers::check<Right>();
  });
  EXPECT_EQ(found, std::vector<std::string>{});
}

TEST(CommunicatorKit, FindsWrongExchanges) {
  expect_found<DropsPiecesOfTheSilent, ExchangesUnevenAndEmptyPieces>("rank 1 of 4", "element 0 is -1 instead of ");
  expect_found<ExchangesOneTensor, ExchangesSeveralTensorsAsOneCollective>("rank 0 of 4", "`receive` of exchange 1");
  expect_found<ExchangesWhenItIsTooLate, ExchangesBesideOtherCollectives>("rank 0 of 4",
                                                                          "`receive` of the all_to_all of round 0");
  expect_found<LetsGoTooEarly, KeepsExchangedMemoryUntilPeersHaveReadIt>("of 4", "is -2 instead of ");
  expect_found<ExchangesWhenItIsTooLate, KeepsExchangedMemoryUntilPeersHaveReadIt>("of 4", "is -1 instead of ");
  expect_found<DropsTheRestOfAnExchange, CutsLongExchanges>("rank 0 of 4", "element 3 is -1 instead of ");
  expect_found<ExchangesUnheard, ChecksFindExchangesThatDisagree>("of 4", "");
  expect_fault_found<NamesNobodyInExchanges, ARankMissingFromAnExchangeIsNamedAtTheDeadline>("rank 0 of 3",
                                                                                             "and not \"rank 1\"");
  expect_fault_found<NamesNobodyInExchanges, ARankThatFailsDuringAnExchangeFreesTheOthers>("of 3",
                                                                                           "and not \"rank 2\"");
}

TEST(CommunicatorKit, FindsARunThatStartsTooFewRanks) {
  expect_sentence(failures_of([] { check_behaviour<RunsOneRank, GathersBytes>(); }), run_asked, "rank 0 of 1",
                  "the number of ranks is 1 instead of 2");
  expect_sentence(failures_of([] { check_behaviour<RunsNothing, GathersBytes>(); }), run_asked, "all cases",
                  "in none of them");
}

TEST(CommunicatorKit, FindsSumsInAnotherOrder) {
  expect_found<SumsFromTheLastRank, SumsInRankOrderToTheBit>("rank 3 of 4", "the sum in `local`, wire f32");
  expect_found<SumsFromTheLastRank, AllReduceGivesTheBitsOfReduceScatter>("rank 0 of 4",
                                                                          "with uneven pieces, wire f32");
  expect_found<SumsFromTheLastRank, CombinesFewValuesInRankOrder>("rank 0 of 4", "the sum of 0.1 * (1 + rank) is ");
  expect_found<KeepsItsOwnOrder, SumsInRankOrderWhereAsked>("rank 2 of 4", "in turns in `local`, wire f32");
  expect_found<AddsTheirSum, AddsRankByRankToWhatIsThere>("rank 2 of 4",
                                                          "element 0 is 2.00000048 instead of 2; 61 of 61");
  expect_found<AddsTheirSum, SumsInRankOrderToTheBit>("rank 3 of 4", "wire f32, added to the 0.1 that was there");
}

TEST(CommunicatorKit, FindsSumsInTheWrongPlace) {
  expect_found<NeverAccumulates, SumsInRankOrderToTheBit>("rank 2 of 4", "added to the 0.1 that was there");
  expect_found<SumsAllOfFull, SumsIntoItsOwnContribution>("rank 0 of 4", "`full`, whose elements from 0 on");
  expect_found<ForgetsToGatherSums, AllReduceGivesTheBitsOfReduceScatter>("rank 0 of 4", "with equal pieces");
  expect_found<StopsAtItsScratch, SumsMoreThanItsScratchHolds>("rank 1 of 4", "element 262144 is 0 instead of ");
}

TEST(CommunicatorKit, FindsDroppedPieces) {
  expect_found<DropsEmptyPieces, GathersUnevenAndEmptyPieces>("rank 1 of 4", "element 0 is -1 instead of 0; 18 of 18");
  expect_found<MovesOneSegment, MovesManySegmentsAsOneCollective>("rank 0 of 4", "`full` of segment 1");
  expect_found<MislaysPiecesInPlace, GathersInPlaceWithoutCopyingItself>("rank 0 of 4", "element 5 is 0 instead of 1");
  expect_found<DropsTheRestOfAMessage, CutsLongMessages>("rank 0 of 4", "element 3 is -1 instead of 2");
}

TEST(CommunicatorKit, FindsRequestsThatCompleteEarly) {
  expect_found<CompletesEarly, WaitsForResultsAndForPeersThatStillRead>("rank 0 of 4", "is -1 instead of ");
  expect_found<CompletesEarly, KeepsSeveralCollectivesInFlight>("of 4", "`full` of collective ");
  expect_found<LetsGoTooEarly, WaitsForResultsAndForPeersThatStillRead>("of 4", "is -2 instead of ");
  expect_found<ForgetsUnwaitedRequests, AnUnwaitedRequestIsWaitedForWhenDestroyed>("rank 0 of 4",
                                                                                   "element 0 is 99 instead of 0");
}

TEST(CommunicatorKit, FindsWrongSmallValuesAndSplits) {
  expect_found<BroadcastsFromRankZero, BroadcastsFromEveryRoot>("rank 0 of 4",
                                                                "from root 1: element 0 is 0 instead of 1");
  expect_found<GathersOwnBytes, GathersBytes>("rank 2 of 4", "element 0 is 1002 instead of 1000");
  expect_found<TurnsPartsRound, SplitsByColorInRankOrder>(
      "rank 0 of 4", "the rank among those with the same rank % 2 is 1 instead of 0");
}

/// comm::split itself checks the rank numbers in each part.
TEST(CommunicatorKit, WrongSplitsAreRefusedByTheLibraryItself) {
  TurnsPartsRound::run(2, {}, [](TurnsPartsRound& communicator) {
    const int rank = communicator.rank();
    EXPECT_TRUE(test::input_error_of([&] { comm::split(communicator, [](int) { return 0; }); })
                    .starts_with(message("split: a communicator made rank ", rank, " of 2 rank ", 1 - rank,
                                         " of 2, and it is rank ", rank, " of 2; ranks of equal color")));
  });
}

TEST(CommunicatorKit, FindsBrokenChecksAndRecords) {
  expect_found<GathersOwnBytes, ChecksFindRanksThatDisagree>("of 4", "");
  expect_found<ForgetsItsMonitor, RecordsWhatWasAskedFor>("rank 0 of 4",
                                                          "monitor().options.before was told is: instead");
}

TEST(CommunicatorKit, FindsErrorsThatDoNotReportTheFailedRank) {
  expect_fault_found<NamesNobody, ARankThatDoesNotComeIsNamedAtTheDeadline>("rank 0 of 3", "and not \"rank 1\"");
  expect_fault_found<HasNoPatience, ARankThatDoesNotComeIsNamedAtTheDeadline>("3 ranks", "s, with a deadline of 0.1 s");
  expect_fault_found<NamesNobody, AThrowingRankFreesTheOthers>("rank 0 of 4", "and not \"rank 2\"");
  expect_fault_found<ReportsNoFailure, AThrowingRankFreesTheOthers>("4 ranks", "no error was thrown");
  expect_fault_found<NamesNobody, AFailureReachesCommunicatorsThatWereSplit>("rank 1 of 4", "and not \"rank 3\"");
  expect_fault_found<NamesNobody, ASplitCommunicatorNamesRanksOfTheWholeJob>("rank 1 of 4", "and not \"for rank 3\"");
  expect_fault_found<ReportsNoFailure, UnwindingWithCollectivesInFlightNeitherHangsNorThrows>("2 ranks",
                                                                                              "no error was thrown");
}

}  // namespace
}  // namespace fsdp::testing
