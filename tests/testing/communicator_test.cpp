// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/testing/communicator.hpp>

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <support/errors.hpp>
#include "failures.hpp"
#include "wrong_communicators.hpp"
#include "wrong_requests.hpp"

namespace fsdp::testing {
namespace {

/// Expects that one behaviour test reports this failure on four ranks.
template <class Behaviour, class Ranks = Wrong>
void expect_found(CommFlaw flaw, std::string_view where, std::string_view found) {
  const auto messages = failures_with(comm_flaw, flaw, [] {
    check_behaviour<Ranks, Behaviour>(Case{.in_words = "the case of this test", .ranks = 4});
  });
  expect_sentence(messages, Behaviour::asked, where, found);
  for (const std::string& text : messages) test::expect_parts(text, {"the case of this test"});
}
template <class Fault, class Ranks = Wrong>
void expect_fault_found(CommFlaw flaw, std::string_view where, std::string_view found) {
  expect_sentence(failures_with(comm_flaw, flaw, Fault::template check<Ranks>), Fault::asked, where, found);
}

TEST(CommunicatorKit, AcceptsACorrectWrapper) {
  EXPECT_EQ(failures_of([] { check_behaviour<Right, GathersUnevenAndEmptyPieces>(); }), std::vector<std::string>{});
  EXPECT_EQ(failures_of([] { check_behaviour<Right, SumsInRankOrderToTheBit>(); }), std::vector<std::string>{});
  EXPECT_EQ(failures_of([] { check_behaviour<Right, SumsInRankOrderWhereAsked>(); }), std::vector<std::string>{});
  EXPECT_EQ(failures_of([] { check_behaviour<Right, AddsRankByRankToWhatIsThere>(); }), std::vector<std::string>{});
  EXPECT_EQ(failures_of([] { AThrowingRankFreesTheOthers::check<Right>(); }), std::vector<std::string>{});
}

TEST(CommunicatorKit, AcceptsWrappersWithAndWithoutExchanges) {
  static_assert(comm::ExchangingCommunicator<WrongExchanges> && !comm::ExchangingCommunicator<Right>);
  static_assert(comm::check_communicator<WrongExchanges>() && comm::check_communicator<Right>());
  const auto found = failures_of([] {
    check_behaviour<WrongExchanges, ExchangesUnevenAndEmptyPieces>();
    check_behaviour<WrongExchanges, ChecksFindExchangesThatDisagree>();
    ARankMissingFromAnExchangeIsNamedAtTheDeadline::check<WrongExchanges>();
    check_behaviour<Right, ExchangesUnevenAndEmptyPieces>();
    check_behaviour<Right, ChecksFindExchangesThatDisagree>();
    ARankMissingFromAnExchangeIsNamedAtTheDeadline::check<Right>();
    ARankThatFailsDuringAnExchangeFreesTheOthers::check<Right>();
  });
  EXPECT_EQ(found, std::vector<std::string>{});
}

TEST(CommunicatorKit, FindsWrongExchanges) {
  using enum CommFlaw;
  expect_found<ExchangesUnevenAndEmptyPieces, WrongExchanges>(drops_pieces_of_the_silent, "rank 1 of 4",
                                                              "element 0 is -1 instead of ");
  expect_found<ExchangesSeveralTensorsAsOneCollective, WrongExchanges>(exchanges_one_tensor, "rank 0 of 4",
                                                                       "`receive` of exchange 1");
  expect_found<ExchangesBesideOtherCollectives, WrongExchanges>(exchanges_when_it_is_too_late, "rank 0 of 4",
                                                                "`receive` of the all_to_all of round 0");
  expect_found<KeepsExchangedMemoryUntilPeersHaveReadIt, WrongRequests>(lets_go_too_early, "of 4", "is -2 instead of ");
  expect_found<KeepsExchangedMemoryUntilPeersHaveReadIt, WrongExchanges>(exchanges_when_it_is_too_late, "of 4",
                                                                         "is -1 instead of ");
  expect_found<CutsLongExchanges, WrongExchanges>(drops_the_rest_of_a_message, "rank 0 of 4",
                                                  "element 3 is -1 instead of ");
  expect_found<ChecksFindExchangesThatDisagree, WrongExchanges>(gathers_own_bytes, "of 4", "");
  expect_fault_found<ARankMissingFromAnExchangeIsNamedAtTheDeadline, WrongExchanges>(names_nobody, "rank 0 of 3",
                                                                                     "and not \"rank 1\"");
  expect_fault_found<ARankThatFailsDuringAnExchangeFreesTheOthers, WrongExchanges>(names_nobody, "of 3",
                                                                                   "and not \"rank 2\"");
}

TEST(CommunicatorKit, FindsARunThatStartsTooFewRanks) {
  expect_sentence(failures_with(comm_flaw, CommFlaw::runs_one_rank, check_behaviour<Wrong, GathersBytes>), run_asked,
                  "rank 0 of 1", "the number of ranks is 1 instead of 2");
  expect_sentence(failures_with(comm_flaw, CommFlaw::runs_nothing, check_behaviour<Wrong, GathersBytes>), run_asked,
                  "all cases", "in none of them");
}

TEST(CommunicatorKit, FindsSumsInAnotherOrder) {
  using enum CommFlaw;
  expect_found<SumsInRankOrderToTheBit>(sums_from_the_last_rank, "rank 3 of 4", "the sum in `local`, wire f32");
  expect_found<AllReduceGivesTheBitsOfReduceScatter>(sums_from_the_last_rank, "rank 0 of 4",
                                                     "with uneven pieces, wire f32");
  expect_found<CombinesFewValuesInRankOrder>(sums_from_the_last_rank, "rank 0 of 4", "the sum of 0.1 * (1 + rank) is ");
  expect_found<SumsInRankOrderWhereAsked>(keeps_its_own_order, "rank 2 of 4", "in turns in `local`, wire f32");
  expect_found<AddsRankByRankToWhatIsThere>(adds_their_sum, "rank 2 of 4",
                                            "element 0 is 2.00000048 instead of 2; 61 of 61");
  expect_found<SumsInRankOrderToTheBit>(adds_their_sum, "rank 3 of 4", "wire f32, added to the 0.1 that was there");
}

TEST(CommunicatorKit, FindsSumsInTheWrongPlace) {
  using enum CommFlaw;
  expect_found<SumsInRankOrderToTheBit>(never_accumulates, "rank 2 of 4", "added to the 0.1 that was there");
  expect_found<SumsIntoItsOwnContribution>(sums_all_of_full, "rank 0 of 4", "`full`, whose elements from 0 on");
  expect_found<AllReduceGivesTheBitsOfReduceScatter>(forgets_to_gather_sums, "rank 0 of 4", "with equal pieces");
  expect_found<SumsMoreThanItsScratchHolds>(stops_at_its_scratch, "rank 1 of 4", "element 262144 is 0 instead of ");
}

TEST(CommunicatorKit, FindsDroppedPieces) {
  using enum CommFlaw;
  expect_found<GathersUnevenAndEmptyPieces>(drops_empty_pieces, "rank 1 of 4",
                                            "element 0 is -1 instead of 0; 18 of 18");
  expect_found<MovesManySegmentsAsOneCollective>(moves_one_segment, "rank 0 of 4", "`full` of segment 1");
  expect_found<GathersInPlaceWithoutCopyingItself>(mislays_pieces_in_place, "rank 0 of 4",
                                                   "element 5 is 0 instead of 1");
  expect_found<CutsLongMessages>(drops_the_rest_of_a_message, "rank 0 of 4", "element 3 is -1 instead of 2");
}

TEST(CommunicatorKit, FindsRequestsThatCompleteEarly) {
  using enum CommFlaw;
  expect_found<WaitsForResultsAndForPeersThatStillRead, WrongRequests>(completes_early, "rank 0 of 4",
                                                                       "is -1 instead of ");
  expect_found<KeepsSeveralCollectivesInFlight, WrongRequests>(completes_early, "of 4", "`full` of collective ");
  expect_found<WaitsForResultsAndForPeersThatStillRead, WrongRequests>(lets_go_too_early, "of 4", "is -2 instead of ");
  expect_found<AnUnwaitedRequestIsWaitedForWhenDestroyed, WrongRequests>(forgets_unwaited_requests, "rank 0 of 4",
                                                                         "element 0 is 99 instead of 0");
}

TEST(CommunicatorKit, FindsWrongSmallValuesAndSplits) {
  using enum CommFlaw;
  expect_found<BroadcastsFromEveryRoot>(broadcasts_from_rank_zero, "rank 0 of 4",
                                        "from root 1: element 0 is 0 instead of 1");
  expect_found<GathersBytes>(gathers_own_bytes, "rank 2 of 4", "element 0 is 1002 instead of 1000");
  expect_found<SplitsByColorInRankOrder>(turns_parts_round, "rank 0 of 4",
                                         "the rank among those with the same rank % 2 is 1 instead of 0");
}

/// comm::split itself checks the rank numbers in each part.
TEST(CommunicatorKit, WrongSplitsAreRefusedByTheLibraryItself) {
  comm_flaw = CommFlaw::turns_parts_round;
  Wrong::run(2, {}, [](Wrong& communicator) {
    const int rank = communicator.rank();
    EXPECT_TRUE(test::input_error_of([&] { comm::split(communicator, [](int) { return 0; }); })
                    .starts_with(message("split: a communicator made rank ", rank, " of 2 rank ", 1 - rank,
                                         " of 2, and it is rank ", rank, " of 2; ranks of equal color")));
  });
  comm_flaw = CommFlaw::none;
}

TEST(CommunicatorKit, FindsBrokenChecksAndRecords) {
  expect_found<ChecksFindRanksThatDisagree>(CommFlaw::gathers_own_bytes, "of 4", "");
  expect_found<RecordsWhatWasAskedFor>(CommFlaw::forgets_its_monitor, "rank 0 of 4",
                                       "monitor().options.before was told is: instead");
}

TEST(CommunicatorKit, FindsErrorsThatDoNotReportTheFailedRank) {
  using enum CommFlaw;
  expect_fault_found<ARankThatDoesNotComeIsNamedAtTheDeadline>(names_nobody, "rank 0 of 3", "and not \"rank 1\"");
  expect_fault_found<ARankThatDoesNotComeIsNamedAtTheDeadline>(has_no_patience, "3 ranks",
                                                               "s, with a deadline of 0.1 s");
  expect_fault_found<AThrowingRankFreesTheOthers>(names_nobody, "rank 0 of 4", "and not \"rank 2\"");
  expect_fault_found<AThrowingRankFreesTheOthers>(reports_no_failure, "4 ranks", "no error was thrown");
  expect_fault_found<AFailureReachesCommunicatorsThatWereSplit>(names_nobody, "rank 1 of 4", "and not \"rank 3\"");
  expect_fault_found<ASplitCommunicatorNamesRanksOfTheWholeJob>(names_nobody, "rank 1 of 4", "and not \"for rank 3\"");
  expect_fault_found<UnwindingWithCollectivesInFlightNeitherHangsNorThrows>(reports_no_failure, "2 ranks",
                                                                            "no error was thrown");
}

}  // namespace
}  // namespace fsdp::testing
