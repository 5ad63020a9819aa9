// SPDX-License-Identifier: Apache-2.0
// Checkpoints that fail: the same sentence on all ranks, after which the ranks still train.
#include <tessera/fsdp/checkpoint/sharded.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <support/nets.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::test {
namespace {

using Network = Net<RunTimeSharded>;
using Texts = std::vector<std::string>;

const RunTimeSharded fsdp2{.strategy = FullyShard<>{}};

void train(Network& sharded, int steps = 1) { net::steps(sharded, {.uses = {0, 1, 2}}, steps); }

/// What each rank is told by call(rank), which throws E on all of them.
template <class E, class Call>
void expect_same(Comm& communicator, const Call& call, const std::string& words) {
  std::string said = "nothing";
  try {
    call(communicator.rank());
  } catch (const E& error) {
    said = error.what();
  }
  EXPECT_NE(said.find(words), std::string::npos) << "rank " << communicator.rank() << ": " << said;
  const Texts all = comm::gather_texts(communicator, said, "what was said");  // the communicator is sound
  for (const std::string& text : all) EXPECT_EQ(text, all[0]);
}

TEST(FailedSave, IsTheSameOnAllRanksAndTrainingGoesOn) {
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(message(ranks, " ranks"));
    const TemporaryFolder folder;
    const std::filesystem::path file = folder.write("file", "content");
    on_ranks(ranks, [&](Comm& communicator) {
      Network sharded(communicator, net::units(3), fsdp2);
      const auto refused = [&](const std::filesystem::path& dir, const checkpoint::HostValues& values,
                               const std::string& words) {
        expect_same<InputError>(
            communicator, [&](int) { checkpoint::save(sharded, dir, values); }, words);
        train(sharded);
      };
      sharded.initialize(1);
      train(sharded);
      refused("/proc/no such folder", {}, "/proc/no such folder: cannot be created");
      refused(file / "below", {}, "file/below: cannot be created");
      refused(folder.path() / "new", {{"large", std::string(70'000, 'x')}}, "which holds 65536");
      refused(folder.path() / "new", {{"state", "\xff\xfe"}}, "own value \"state\" is not UTF-8");
      refused(folder.path() / "new", {{"\xff", "state"}}, "own value \"\\xff\" is not UTF-8");
      EXPECT_FALSE(std::filesystem::exists(folder.path() / "new"));  // refused before anything is written
      expect_same<InputError>(  // ranks that see different folders: the others fail, and not rank 0
          communicator, [&](int rank) { checkpoint::save(sharded, folder.path() / (rank == 0 ? "zero" : "others")); },
          "do all ranks see the same directory?");
      train(sharded);
      EXPECT_EQ(checkpoint::save(sharded, folder.path() / "good").filename(), "step-00000007");
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder.path() / "zero"));
  }
}

TEST(FailedSave, OfNamesThatCannotBeReadBackWritesNothing) {
  const TemporaryFolder folder;
  for (const std::string& name : {std::string("a\nb"), std::string(520, 'n'), std::string(510, 'n')})
    on_ranks(2, [&](Comm& communicator) {
      const auto call = [&](int) {
        Network sharded(communicator, {{"unit0", {{name, {5}}}}}, fsdp2);
        sharded.initialize(1);
        checkpoint::save(sharded, folder.path() / "new");
      };
      expect_same<InputError>(communicator, call, "a tensor's name must have 1 to 512 bytes");
    });
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "new"));
}

TEST(FailedSave, OfWeightsWithoutValuesIsALogicErrorOnAllRanks) {
  const TemporaryFolder folder;
  on_ranks(2, [&](Comm& communicator) {
    Network sharded(communicator, net::units(3), fsdp2);
    const auto save = [&](int) { checkpoint::save(sharded, folder.path() / "new"); };
    expect_same<LogicError>(communicator, save, "unit0.w and others have no values yet; initialize, load or set them");
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "new"));
    sharded.initialize(1);
    EXPECT_NO_THROW(save(0));
  });
}

}  // namespace
}  // namespace fsdp::test
