// SPDX-License-Identifier: Apache-2.0
#include "src/program/cli/stack_choice.hpp"

#include <gtest/gtest.h>

#include "support/choices.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::cli {
namespace {

TEST(ParseSharding, RoundTripsEveryName) {
  for (const char* name : {"fsdp2",
                           "fsdp2:no-reshard",
                           "fsdp2:2",
                           "zero1",
                           "zero2",
                           "zero3",
                           "hybrid:2",
                           "hybrid:4:full",
                           "replicated",
                           "hybrid:2:zero3",
                           "hybrid:2:full:zero1",
                           "hybrid:2:fsdp2:no-reshard:deferred",
                           "hybrid:3:zero3:persist=7",
                           "fsdp2:pieces=8",
                           "fsdp2:no-reshard:pieces=8",
                           "fsdp2:2:pieces=12",
                           "fsdp2:deferred:prefetch=2:pieces=1",
                           "fsdp2:deferred:prefetch=2:budget=7:pieces=1",
                           "zero3:persist=7:budget=auto",
                           "hybrid:2:budget=9",
                           "zero1:pieces=3",
                           "zero2:pieces=3",
                           "zero3:prefetch=2:persist=7:live=9:pieces=3"})
    EXPECT_EQ(to_text(parse_sharding(name)), name);
  EXPECT_EQ(pieces_of(parse_sharding("fsdp2:pieces=8")), 8);
  EXPECT_EQ(parse_sharding("fsdp2:pieces=8:2:deferred"), parse_sharding("fsdp2:2:deferred:pieces=8"));
  EXPECT_EQ(std::get<RunTimeHybridFull>(parse_sharding("hybrid:4:full").strategy).group, 4);
  EXPECT_EQ(parse_sharding("hybrid:zero3:persist=7:2:full"), parse_sharding("hybrid:2:full:zero3:persist=7"));
  EXPECT_EQ(parse_sharding("hybrid:2:fsdp2"), parse_sharding("hybrid:2"));
  EXPECT_NE(parse_sharding("hybrid:2:prefetch=2"), parse_sharding("hybrid:2"));
}

TEST(ParseSharding, AnythingElseIsAnErrorWithTheNearestName) {
  EXPECT_INPUT_ERROR(parse_sharding("fdsp2"), "--sharding fdsp2 is not known; did you mean 'fsdp2'?");
  EXPECT_INPUT_ERROR(parse_sharding("zero4"), "zero1");
  EXPECT_INPUT_ERROR(parse_sharding("fsdp2:no-reshrd"), "did you mean 'fsdp2:no-reshard'?");
  for (const char* bad : {"", "fsdp2:", "fsdp2:0", "fsdp2:-1", "fsdp2:2x", "hybrid", "hybrid:full", "hybrid::full",
                          "hybrid:0:full", "zero3:2", "zero3:zero2", "hybrid:2:replicated", "hybrid:2:hybrid",
                          "hybrid:2:zero3:zero2", "hybrid:2:zero1:deferred", "hybrid:2:persist=3",
                          "hybrid:2:zero3:no-reshard", "FSDP2", "fsdp2:99999999999999999999"})
    EXPECT_THROW(parse_sharding(bad), InputError) << bad;
}

TEST(ParseSharding, ErrorsListEveryStrategyAndParameterOnce) {
  for (const char* known :
       {"Known: fsdp2, fsdp2:no-reshard, fsdp2:K, fsdp2:deferred, fsdp2:prefetch=N, fsdp2:budget=BYTES, "
        "fsdp2:pieces=N, ",
        "zero1, zero2, zero3, zero3:persist=N, zero3:live=N, ", "hybrid:K, hybrid:K:full, hybrid:K:zero3, replicated"})
    EXPECT_INPUT_ERROR(parse_sharding("zero"), known);
  for (const char* bad : {"hybrid", "hybrid:full"})
    EXPECT_INPUT_ERROR(parse_sharding(bad), std::string("--sharding ") + bad +
                                                " does not say how many ranks hold a model together; write hybrid:K");
  EXPECT_INPUT_ERROR(parse_sharding("fsdp2:4294967298"), "the number must be at most 2147483647");
  EXPECT_INPUT_ERROR(parse_sharding("zero3:live=99999999999999999999"), "the number must be at most 1125899906842624");
}

TEST(ParseSharding, ABudgetIsANumberOfBytesOrAuto) {
  EXPECT_EQ(to_text(parse_sharding("fsdp2:budget=512MiB")), "fsdp2:budget=536870912");
  EXPECT_EQ(to_text(parse_sharding("hybrid:2:budget=1KiB:zero3")), "hybrid:2:zero3:budget=1024");
  for (const char* bad : {"0", "", "-1", "x", "12MB", "1.5GiB", "512Mi"})
    EXPECT_INPUT_ERROR(parse_sharding(std::string("fsdp2:budget=") + bad),
                       std::string("--sharding fsdp2:budget=") + bad + ": '" + bad +
                           "' is not a number of bytes; write one such as budget=536870912 or budget=512MiB, or "
                           "budget=auto");
  EXPECT_INPUT_ERROR(parse_sharding("fsdp2:budget=1:budget=2"), "says twice how many bytes gathered weights take");
  EXPECT_INPUT_ERROR(parse_sharding("fsdp2:budget=9999999TiB"), "the number must be at most 1125899906842624");
  for (const char* other : {"fsdp2:no-reshard", "fsdp2:2", "zero1", "zero2", "replicated", "hybrid:2:zero1"})
    EXPECT_INPUT_ERROR(parse_sharding(std::string(other) + ":budget=5"),
                       std::string(": a budget chooses how long gathered weights are held, and ") + other +
                           " says that itself; write fsdp2:budget=5 or zero3:budget=5, or leave it out");
}

TEST(ParseSharding, InvalidPiecesAreRefusedWithValidAlternatives) {
  for (const char* bad : {"0", "", "-1", "x", "8x", "1.5"})
    EXPECT_INPUT_ERROR(parse_sharding(std::string("zero2:pieces=") + bad),
                       std::string("--sharding zero2:pieces=") + bad +
                           ": a step has at least 1 piece; write pieces=N with a whole number from 1 on");
  EXPECT_INPUT_ERROR(parse_sharding("fsdp2:pieces=4:pieces=2"),
                     "says twice how many pieces a step has; write pieces=N");
  EXPECT_INPUT_ERROR(parse_sharding("fsdp2:pieces=2000000"), "the number must be at most 1048576");
  for (const char* hybrid : {"hybrid:2:pieces=8", "hybrid:2:full:zero3:pieces=8", "hybrid:pieces=8"})
    EXPECT_INPUT_ERROR(parse_sharding(hybrid),
                       std::string("--sharding ") + hybrid +
                           ": each group of ranks adds up its gradients first, so that "
                           "results would depend on the number of ranks; take fsdp2:pieces=8, zero2:pieces=8 or "
                           "zero3:pieces=8");
  EXPECT_INPUT_ERROR(parse_sharding("replicated:pieces=4"),
                     "each rank adds up its gradients first, so that results would "
                     "depend on the number of ranks; take fsdp2:pieces=4");
  EXPECT_INPUT_ERROR(parse_sharding("fsdp2:piece=4"), "did you mean 'fsdp2:pieces=N'?");
}

TEST(ParseLayout, ReadsLayoutNamesAndRefusesOthers) {
  for (const char* name : {"default", "per-parameter", "flat", "rows", "owned", "blocks"})
    EXPECT_EQ(to_text(parse_layout(name)), name);
  EXPECT_INPUT_ERROR(parse_layout("row"), "--layout row is not known; did you mean 'rows'?");
}

/// A missing communicator is reported before a missing precision.
TEST(Lacking, ReportsTheMissingPolicyAndTheAvailableOnes) {
  const CompiledParts has{.comms = {"threads"}, .precisions = {"bf16", "fp32"}};
  StackChoice asked;
  asked.sharding = parse_sharding("hybrid:2:full");
  asked.offload = OffloadChoice::optimizer;
  EXPECT_EQ(missing_parts_text(asked, has), "");
  asked.precision = PrecisionChoice::bf16_wire;
  EXPECT_INPUT_ERROR(require_built(asked, has),
                     "--precision bf16:wire=bf16: this program was built with bf16, fp32; take one of them, or build "
                     "it with -DTESSERA_PRECISIONS=all");
  asked.comm.kind = CommChoice::Kind::mpi;
  EXPECT_INPUT_ERROR(require_built(asked, has),
                     "--comm mpi: this program was built without mpi and has threads; build the preset release, with "
                     "-DTESSERA_COMMS=all, where CMake finds MPI (cmake/dependencies.sh installs it)");
  asked.comm.kind = CommChoice::Kind::nccl;
  test::expect_parts(missing_parts_text(asked, has), {"where CMake finds CUDA and NCCL"});
  asked.comm.kind = CommChoice::Kind::threads;
  EXPECT_EQ(missing_parts_text(asked, {.comms = {"mpi"}, .precisions = {"bf16"}}),
            "--comm threads: this program was built without threads and has mpi; build the preset release, with "
            "-DTESSERA_COMMS=all");
}

TEST(ParseTiling, ReadsPolicies) {
  for (const char* name : {"off", "tiles:4", "tokens:512", "budget:1000000", "budget:auto"})
    EXPECT_EQ(to_text(parse_tiling(name)), name);
  EXPECT_EQ(parse_tiling("off"), tiling::RunTimeTiling());
  EXPECT_EQ(parse_tiling("tiles:4"), tiling::RunTimeTiling::tiles(4));
  EXPECT_EQ(parse_tiling("tokens:512"), tiling::RunTimeTiling::tokens(512));
  EXPECT_EQ(parse_tiling("budget:5"), tiling::RunTimeTiling::budget(5));
  EXPECT_EQ(parse_tiling("budget:3KiB"), tiling::RunTimeTiling::budget(3 * 1024));
  EXPECT_EQ(to_text(parse_tiling("budget:512MiB")), "budget:536870912");
  EXPECT_EQ(parse_tiling("budget:2GiB"), tiling::RunTimeTiling::budget(std::int64_t{2} << 30));
  EXPECT_INPUT_ERROR(known_tiling(parse_tiling("budget:auto")), "give bytes");
  for (const char* bad : {"budget:0", "budget:-1", "budget:", "budget:MiB", "budget:1MB", "budget:9999999TiB"})
    EXPECT_INPUT_ERROR(parse_tiling(bad), "is not known");
  EXPECT_INPUT_ERROR(parse_tiling("tile:4"), "did you mean 'tiles:N'?");
  EXPECT_INPUT_ERROR(parse_tiling("tiles:0"), "is not known");
}

TEST(ParsePrecisionAndComm, ReadNamesAndRefuseOthers) {
  EXPECT_EQ(to_text(parse_precision("fp32")), "fp32");
  EXPECT_EQ(to_text(parse_precision("bf16")), "bf16");
  EXPECT_EQ(to_text(parse_precision("bf16:wire=bf16")), "bf16:wire=bf16");
  EXPECT_INPUT_ERROR(parse_precision("bf16:wire=fp8"), "did you mean 'bf16:wire=bf16'?");
  for (const char* name : {"none", "optimizer"}) EXPECT_EQ(to_text(parse_offload(name)), name);
  EXPECT_INPUT_ERROR(parse_offload("optimiser"), "did you mean 'optimizer'?");
  EXPECT_INPUT_ERROR(parse_precision("fp16"), "--precision fp16");
  for (const char* name : {"self", "threads:3", "mpi", "nccl"}) EXPECT_EQ(to_text(parse_comm(name)), name);
  EXPECT_INPUT_ERROR(parse_comm("thread:2"), "did you mean 'threads:N'?");
  EXPECT_INPUT_ERROR(parse_comm("threads:5000"), "at most 1024");
}

}  // namespace
}  // namespace fsdp::cli
