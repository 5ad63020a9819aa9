// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/launch/signals.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/version.hpp>
#include <tessera/trainer/run/same_bits.hpp>
#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

using Comm = comm::Threads<>;

/// The result of `call` on each of three ranks, or its error message with the kind of error.
template <class Call>
std::vector<std::string> told(Call call) {
  std::vector<std::string> texts(3);
  Comm::run(3, {}, [&](Comm& communicator) {
    std::string& text = texts[static_cast<std::size_t>(communicator.rank())];
    try {
      text = call(communicator);
    } catch (const InputError& error) {
      text = std::string("input: ") + error.what();
    } catch (const DivergedError& error) {
      text = std::string("diverged: ") + error.what();
    } catch (const LogicError& error) {
      text = std::string("logic: ") + error.what();
    } catch (const MemoryError& error) {
      text = std::string("memory: ") + error.what();
    } catch (const CorruptionError& error) {
      text = std::string("corruption: ") + error.what();
    } catch (const comm::StoppedError& error) {
      text = std::to_string(error.signal_number()) + " " + error.what();
    } catch (const Error& error) {
      text = std::string("error: ") + error.what();
    }
  });
  return texts;
}

TEST(Together, ReturnsTheResultOfEachRank) {
  EXPECT_EQ(told([](Comm& c) { return comm::together(c, "test", [&] { return std::to_string(c.rank()); }); }),
            (std::vector<std::string>{"0", "1", "2"}));
}

TEST(Together, AnErrorOfOneRankIsThrownOnAllWithItsRank) {
  const auto failing = [](auto error_of) {
    return told([&](Comm& c) {
      comm::together(c, "test", [&] {
        if (c.rank() > 0) error_of(c.rank());
      });
      return std::string();
    });
  };
  EXPECT_EQ(failing([](int rank) { throw InputError("no file " + std::to_string(rank)); }),
            (std::vector<std::string>(3, "input: rank 1: no file 1")));
  EXPECT_EQ(failing([](int) { throw DivergedError("nan"); }), (std::vector<std::string>(3, "diverged: rank 1: nan")));
  EXPECT_EQ(failing([](int) { throw LogicError("order"); }), (std::vector<std::string>(3, "logic: rank 1: order")));
  EXPECT_EQ(failing([](int) { throw MemoryError("full"); }), (std::vector<std::string>(3, "memory: rank 1: full")));
  EXPECT_EQ(failing([](int) { throw CorruptionError("bit"); }),
            (std::vector<std::string>(3, "corruption: rank 1: bit")));
  EXPECT_EQ(failing([](int) { throw Error("full disk"); }), (std::vector<std::string>(3, "error: rank 1: full disk")));
  EXPECT_EQ(failing([](int) { throw 7; }),
            (std::vector<std::string>(3, "error: rank 1: an exception of unknown type")));
  EXPECT_EQ(failing([](int) { throw comm::StoppedError(15, "SIGTERM: ended"); }),
            (std::vector<std::string>(3, "15 SIGTERM: ended")));
  EXPECT_EQ(failing([](int) { throw std::bad_alloc(); }).front().substr(0, 14), "error: rank 1:");
}

TEST(Together, AnErrorOfAllRanksMentionsNoRank) {
  EXPECT_EQ(told([](Comm& c) {
              comm::together(c, "test", [] { throw InputError("no file"); });
              return std::string();
            }),
            (std::vector<std::string>(3, "input: no file")));
}

TEST(Together, UsesOneCollectiveOrTwoOnFailure) {
  Comm::run(3, {}, [&](Comm& c) {
    comm::together(c, "test", [] {});
    EXPECT_EQ(c.monitor().totals.traffic.calls(), 1);
    EXPECT_THROW(comm::together(c, "test", [&] { require(c.rank() != 1, "order"); }), LogicError);
    EXPECT_EQ(c.monitor().totals.traffic.calls(), 3);
  });
}

TEST(AgreeOnOpened, ReportsTheFirstDifferingLineOfBothRanks) {
  const auto opened = [](const std::vector<std::string>& texts) {
    return told([&](Comm& c) {
             comm::agree_on_opened(c, texts[static_cast<std::size_t>(c.rank())]);
             return std::string("agreed");
           })
        .at(1);
  };
  const std::string all = "data = x\nsteps = 3\n";
  EXPECT_EQ(opened({all, all, all}), "agreed");
  EXPECT_EQ(opened({"", "", ""}), "agreed");
  EXPECT_EQ(opened({all, all, "data = x\nsteps = 4\n"}),
            "input: ranks do not see the same: rank 0 has 'steps = 3', rank 2 has 'steps = 4'; give all ranks the same "
            "files");
  test::expect_parts(opened({all, all + "more = 1\n", all}), {"rank 0 has '', rank 1 has 'more = 1'"});
  test::expect_parts(opened({all, "", all}), {"rank 0 has 'data = x', rank 1 has ''"});
}

TEST(LastBits, IdentifyBuildLibraryAndThreads) {
  const RunRecord record = last_bits<device::Cpu>(3);
  EXPECT_EQ(record.at("threads"), "3");
  EXPECT_EQ(record.at("device"), "cpu");
  EXPECT_EQ(record.at("instruction-set"), device::arithmetic());
  EXPECT_TRUE(record.at("build").starts_with(std::string(version_string) + ", ")) << record.at("build");
  EXPECT_EQ(record.at("build").find("unknown"), std::string::npos) << record.at("build");
  EXPECT_TRUE(record.at("library").starts_with("oneDNN ")) << record.at("library");
  EXPECT_EQ(record.at("library"), device::matmul_library());
}

/// The error message on each of three ranks if rank 1 has a different value of `name`; empty without an error.
std::vector<std::string> told(const std::string& name, const std::string& value) {
  std::vector<std::string> texts(3);
  Comm::run(3, {}, [&](Comm& communicator) {
    RunRecord mine = last_bits<device::Cpu>(1);
    if (communicator.rank() == 1) mine[name] = value;
    texts[static_cast<std::size_t>(communicator.rank())] =
        test::error_of<InputError>([&] { agree_on_last_bits(communicator, mine); });
  });
  return texts;
}

TEST(AgreeOnLastBits, ADifferenceIsAnErrorOnAllRanks) {
  EXPECT_EQ(told("threads", "1"), std::vector<std::string>(3));
  for (const char* name : {"build", "instruction-set", "library", "threads"}) {
    const std::vector<std::string> texts = told(name, "other");
    test::expect_parts(
        texts[0], {std::string("rank 1 has '") + name + " = other'", "leave the pieces (:pieces=N of --sharding) out"});
    EXPECT_EQ(texts, std::vector<std::string>(3, texts[0]));
  }
}

TEST(ReducedSooner, ReportsStrategiesThatReduceMoreOftenWithPieces) {
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

TEST(TilesText, ContainsOnlyPropertiesThatAffectResults) {
  EXPECT_EQ(tiles_text(""), "");
  EXPECT_EQ(tiles_text("tiling: head, 1 tile of 512 tokens, 0 kept; 364544 bytes; 0 FLOPs recomputed\n"),
            "tiling: head, 1 tile of 512 tokens");
  EXPECT_EQ(tiles_text("tiling: MLP of a block, 64 tiles of up to 32 tokens, 3 kept; 5 bytes\nb\n"),
            "tiling: MLP of a block, 64 tiles of up to 32 tokens; b");
}

}  // namespace
}  // namespace fsdp::train
