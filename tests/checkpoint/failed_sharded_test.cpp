// SPDX-License-Identifier: Apache-2.0
// Failed checkpoints: all ranks throw the same error message and can continue to train.
#include <tessera/fsdp/checkpoint/sharded.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <support/errors.hpp>
#include <support/nets.hpp>

#include <tessera/comm/ranks.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::test {
namespace {

using Network = Net<RunTimeAny>;
using Texts = std::vector<std::string>;

const RunTimeAny by_fsdp2{.strategy = FullyShard<>{}}, by_zero3{.strategy = Zero3{}};

void train(Network& sharded, int steps = 1) { net::steps(sharded, {.uses = {0, 1, 2}}, steps); }

/// Expects that call(rank) throws E on every rank, with the same message, which contains `words`.
template <class E, class Call>
void expect_same(Comm& communicator, const Call& call, const std::string& words) {
  const std::string said = error_of<E>([&] { call(communicator.rank()); });
  EXPECT_NE(said.find(words), std::string::npos) << "rank " << communicator.rank() << ": " << said;
  const Texts all = comm::gather_texts(communicator, said, "what was said");  // the communicator still works
  for (const std::string& text : all) EXPECT_EQ(text, all[0]);
}

/// Writes a checkpoint of a network of `units` units after `steps` steps and returns its path.
std::filesystem::path saved(const std::filesystem::path& folder, int units = 3, int steps = 1) {
  std::filesystem::path path;
  on_ranks(2, [&](Comm& communicator) {
    Network sharded(communicator, net::units(units), by_fsdp2);
    sharded.initialize(1);
    std::vector<int> uses(static_cast<std::size_t>(units));
    std::iota(uses.begin(), uses.end(), 0);
    net::steps(sharded, {.uses = uses}, steps);
    const std::filesystem::path written = checkpoint::save(sharded, folder);
    if (communicator.rank() == 0) path = written;
  });
  return path;
}

/// Changes the last byte of a file.
void damage(const std::filesystem::path& path) {
  std::string content = content_of(path);
  content.back() = static_cast<char>(content.back() ^ 1);
  std::ofstream(path, std::ios::binary) << content;
}

TEST(FailedSave, ThrowsTheSameErrorOnAllRanksAndTrainingContinues) {
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(message(ranks, " ranks"));
    const TemporaryFolder folder;
    const std::filesystem::path file = folder.write("file", "content");
    on_ranks(ranks, [&](Comm& communicator) {
      Network sharded(communicator, net::units(3), by_fsdp2);
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
      expect_same<InputError>(  // ranks that see different folders: all but rank 0 fail
          communicator, [&](int rank) { checkpoint::save(sharded, folder.path() / (rank == 0 ? "zero" : "others")); },
          "do all ranks see the same directory?");
      train(sharded);
      EXPECT_EQ(checkpoint::save(sharded, folder.path() / "good").filename(), "step-00000007");
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder.path() / "zero"));
  }
}

TEST(FailedSave, WritesNothingIfNamesCannotBeReadBack) {
  const TemporaryFolder folder;
  for (const std::string& name : {std::string("a\nb"), std::string(520, 'n'), std::string(510, 'n')})
    on_ranks(2, [&](Comm& communicator) {
      const auto call = [&](int) {
        Network sharded(communicator, {{"unit0", {{name, {5}}}}}, by_fsdp2);
        sharded.initialize(1);
        checkpoint::save(sharded, folder.path() / "new");
      };
      expect_same<InputError>(communicator, call, "a tensor's name must have 1 to 512 bytes");
    });
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "new"));
}

TEST(FailedSave, IsALogicErrorOnAllRanksIfWeightsHaveNoValues) {
  const TemporaryFolder folder;
  on_ranks(2, [&](Comm& communicator) {
    Network sharded(communicator, net::units(3), by_fsdp2);
    const auto save = [&](int) { checkpoint::save(sharded, folder.path() / "new"); };
    expect_same<LogicError>(communicator, save, "unit0.w and others have no values yet; initialize, load or set them");
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "new"));
    sharded.initialize(1);
    EXPECT_NO_THROW(save(0));
  });
}

TEST(FailedLoad, LeavesTheWeightsUnchanged) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "weights.safetensors";
  const std::vector<checkpoint::NamedShape> tensors = {{"unit0.b", {5}}, {"unit0.w", {5, 5}}};
  checkpoint::SharedFile file = checkpoint::SharedFile::create(path, checkpoint::plan_file(tensors));
  std::vector<float> values(25, 2.0f);
  file.write_range(0, 0, std::span(values).first(5));
  values.back() = std::numeric_limits<float>::quiet_NaN();
  file.write_range(1, 0, values);
  file.finish();
  on_ranks(2, [&](Comm& communicator) {
    Network sharded(communicator, net::units(1), by_fsdp2);
    const auto load = [&](int) { checkpoint::load(sharded, path); };
    const net::Loop run{.uses = {0}};
    expect_same<InputError>(communicator, load, "unit0.w[24] is nan");
    EXPECT_THROW(net::steps(sharded, run, 1), LogicError);  // the weights still have no values
    sharded.initialize(1);
    const auto before = net::weights(sharded);
    expect_same<InputError>(communicator, load, "unit0.w[24] is nan");
    EXPECT_EQ(net::weights(sharded), before);
    net::steps(sharded, run, 1);
  });
}

TEST(FailedRestore, LeavesWeightsStatesAndCountersUnchanged) {
  const TemporaryFolder folder;
  const std::filesystem::path step = saved(folder.path());
  damage(step / "optimizer.safetensors");
  on_ranks(2, [&](Comm& communicator) {
    const auto damaged = [&](Network& sharded) {
      expect_same<InputError>(
          communicator, [&](int) { checkpoint::restore(sharded, step); }, "optimizer.safetensors: bytes ");
    };
    Network one(communicator, net::units(3), by_zero3), other(communicator, net::units(3), by_zero3);
    damaged(one);  // its weights have no values yet
    EXPECT_THROW(train(one), LogicError);
    for (Network* const sharded : {&one, &other}) sharded->initialize(2);
    train(one);
    damaged(one);
    EXPECT_EQ(one.optimizer().steps(), 1);
    train(one);
    for (int i = 0; i < 2; ++i) train(other);
    EXPECT_EQ(net::weights(one), net::weights(other));
  });
}

TEST(FailedRestore, ADamagedShardOfOneRankLeavesAllStatisticsUnchanged) {
  const TemporaryFolder folder;
  on_ranks(2, [&](Comm& communicator) {
    const std::vector<Unit> units = {{"large", {{"large.w", {65536}}}}};  // each rank reads different chunks
    const Network::Settings settings{.statistics = {{.name = "seen", .shape = {3}, .initial = Initial::ones}}};
    std::filesystem::path step;
    {
      Network sharded(communicator, units, by_fsdp2, settings);
      sharded.initialize(1);
      std::fill_n(sharded.statistic("seen").data(), 3, 2.0f);
      step = checkpoint::save(sharded, folder.path());
    }
    if (communicator.rank() == 0) damage(step / "optimizer.safetensors");  // damages the shard of rank 1
    comm::barrier(communicator);
    Network sharded(communicator, units, by_fsdp2, settings);  // its weights have no values, but its statistic has
    expect_same<InputError>(
        communicator, [&](int) { checkpoint::restore(sharded, step); }, "optimizer.safetensors: bytes ");
    for (const int i : {0, 1, 2}) EXPECT_EQ(sharded.statistic("seen")[i], 1.0f) << "rank " << communicator.rank();
  });
}

TEST(FailedRestore, DifferentOrdersLeaveTheWeightsUnchanged) {
  const TemporaryFolder folder;
  saved(folder.path());
  on_ranks(2, [&](Comm& communicator) {
    Network sharded(communicator, net::units(3), by_fsdp2,
                    {.orders = {mirrored(std::vector{0, 1, 2}), mirrored(std::vector{2})}});
    sharded.initialize(2);
    const auto before = net::weights(sharded);
    expect_same<InputError>(
        communicator, [&](int) { checkpoint::restore(sharded, folder.path()); },
        "counts the steps of 1 class of groups, and these orders make 2");
    EXPECT_EQ(net::weights(sharded), before);
  });
}

TEST(FailedRestore, ReportsTheFirstDifferenceFromAnotherModel) {
  const TemporaryFolder folder;
  saved(folder.path(), 3, 1);
  const std::filesystem::path other = saved(folder.path(), 2, 2);
  on_ranks(2, [&](Comm& communicator) {
    Network sharded(communicator, net::units(3), by_fsdp2);
    Texts warnings;
    const auto restore = [&](int) { checkpoint::restore(sharded, folder.path(), append_to(warnings)); };
    const std::string said = other.string() + ": a checkpoint of another model: it has no tensor \"unit2.b\"";
    expect_same<InputError>(communicator, restore, said);
    EXPECT_TRUE(warnings.empty());
  });
  std::filesystem::resize_file(other / "model.safetensors", 100);  // an incomplete checkpoint is skipped
  on_ranks(2, [&](Comm& communicator) {
    Network sharded(communicator, net::units(3), by_fsdp2);
    Texts warnings;
    checkpoint::restore(sharded, folder.path(), append_to(warnings));
    ASSERT_EQ(warnings.size(), 1u);
    expect_parts(warnings[0], {"cut short"});
    EXPECT_EQ(sharded.optimizer().steps(), 1);
  });
  std::filesystem::remove_all(folder.path() / "step-00000001");
  on_ranks(2, [&](Comm& communicator) {
    Network sharded(communicator, net::units(3), by_fsdp2);
    const std::string said =
        folder.path().string() + ": holds no complete checkpoint; " + (other / "model.safetensors").string() + ": ";
    expect_same<InputError>(
        communicator, [&](int) { checkpoint::restore(sharded, folder.path()); }, said);
  });
}

}  // namespace
}  // namespace fsdp::test
