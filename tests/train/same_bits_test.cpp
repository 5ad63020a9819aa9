// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/same_bits.hpp>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/version.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

using Comm = comm::Threads<>;

TEST(LastBits, NameBuildLibraryAndThreads) {
  const RunRecord record = last_bits<device::Cpu>(3);
  EXPECT_EQ(record.at("threads"), "3");
  EXPECT_EQ(record.at("device"), "cpu");
  EXPECT_EQ(record.at("instruction-set"), device::arithmetic());
  EXPECT_TRUE(record.at("build").starts_with(std::string(version_string) + ", ")) << record.at("build");
  EXPECT_EQ(record.at("build").find("unknown"), std::string::npos) << record.at("build");
  EXPECT_TRUE(record.at("library").starts_with("oneDNN ")) << record.at("library");
  EXPECT_EQ(record.at("library"), device::matmul_library());
}

/// What each of three ranks is told where rank 1 has another value of `name`; empty where they agree.
std::vector<std::string> told(const std::string& name, const std::string& value) {
  std::vector<std::string> texts(3);
  Comm::run(3, {}, [&](Comm& communicator) {
    RunRecord mine = last_bits<device::Cpu>(1);
    if (communicator.rank() == 1) mine[name] = value;
    try {
      agree_on_last_bits(communicator, mine);
    } catch (const InputError& error) {
      texts[static_cast<std::size_t>(communicator.rank())] = error.what();
    }
  });
  return texts;
}

TEST(AgreeOnLastBits, ADifferenceIsAnErrorOfAllRanks) {
  EXPECT_EQ(told("threads", "1"), std::vector<std::string>(3));
  for (const char* name : {"build", "instruction-set", "library", "threads"}) {
    const std::vector<std::string> texts = told(name, "other");
    EXPECT_NE(texts[0].find(std::string("rank 1 has '") + name + " = other'"), std::string::npos) << texts[0];
    EXPECT_NE(texts[0].find("leave the pieces (:pieces=N of --sharding) out"), std::string::npos);
    EXPECT_EQ(texts, std::vector<std::string>(3, texts[0]));
  }
}

TEST(ReducedSooner, SaysWhichStrategiesReduceMoreOftenWithPieces) {
  EXPECT_EQ(reduced_sooner(Reproducible<Zero1>{{}, 8}),
            "zero1 with pieces reduces gradients after every piece, as zero2");
  RunTimeAny strategy;
  strategy.strategy = Reproducible<Zero1>{{}, 8};
  EXPECT_EQ(reduced_sooner(strategy), "zero1 with pieces reduces gradients after every piece, as zero2");
  EXPECT_FALSE(reduced_sooner(Offload<RunTimeAny>{strategy}).empty());
  EXPECT_EQ(reduced_sooner(Reproducible<FullyShard<>>{{.reduce = ReduceGradients::last_micro_batch}, 8}),
            "fsdp2:deferred with pieces reduces gradients after every piece");
  EXPECT_EQ(reduced_sooner(Reproducible<FullyShard<>>{{}, 8}), "");
  EXPECT_EQ(reduced_sooner(WithLayout<Reproducible<Zero1>, buffer::PerParameter>{{{}, 8}}),
            "zero1 with pieces reduces gradients after every piece, as zero2");
  EXPECT_EQ(reduced_sooner(Zero1{}), "");
  EXPECT_EQ(reduced_sooner(RunTimeAny{}), "");
}

TEST(TilesText, LeavesOutWhatChangesNoBit) {
  EXPECT_EQ(tiles_text(""), "");
  EXPECT_EQ(tiles_text("tiling: head, 1 tile of 512 tokens, 0 kept; 364544 bytes; 0 FLOPs recomputed\n"),
            "tiling: head, 1 tile of 512 tokens");
  EXPECT_EQ(tiles_text("tiling: MLP of a block, 64 tiles of up to 32 tokens, 3 kept; 5 bytes\nb\n"),
            "tiling: MLP of a block, 64 tiles of up to 32 tokens; b");
}

}  // namespace
}  // namespace fsdp::train
