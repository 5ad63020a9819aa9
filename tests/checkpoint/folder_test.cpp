// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/folder.hpp>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <range/v3/view/enumerate.hpp>

#include <array>
#include <memory>

#include <tessera/comm/self.hpp>
#include <tessera/comm/threads.hpp>

#include "support/listed_llama.hpp"
#include "support/saved_llama.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using test::adamw_states;
using test::append_to;
using test::content_of;
using test::names_in;
using test::save_alone;
using test::SavedFolder;
using test::small_model;
using test::some_state;
using test::states_for;
using test::TemporaryFolder;
using test::value_at;
using test::write_share;

const ReadListing read = test::read_small;

TEST(Checkpoint, BytesDoNotDependOnTheNumberOfRanks) {
  const TemporaryFolder folder;
  save_alone(folder.path() / "1", 7);
  for (const std::int64_t ranks : {2, 3, 5}) {
    const std::filesystem::path dir = folder.path() / std::to_string(ranks);
    std::vector<std::unique_ptr<Save>> saves;
    for (std::int64_t r = 0; r < ranks; ++r)
      saves.push_back(std::make_unique<Save>(dir, 7, 1, test::listing_of(small_model), states_for(small_model)));
    saves[0]->create();
    for (std::size_t r = 1; r < saves.size(); ++r) saves[r]->join();
    for (std::int64_t r = ranks - 1; r >= 0; --r) write_share(*saves[static_cast<std::size_t>(r)], r, ranks);
    std::vector<std::string> shares;
    for (const auto& each : saves) shares.push_back(each->sync());
    saves[0]->commit(some_state, shares);
    for (const char* file :
         {"config.json", "model.safetensors", "optimizer.safetensors", "trainer.json", "manifest.json"})
      EXPECT_EQ(content_of(dir / "step-00000007" / file), content_of(folder.path() / "1" / "step-00000007" / file))
          << file;
  }
}

TEST(Checkpoint, RestoresBitIdenticalValuesAndTheDataPosition) {
  const SavedFolder folder;
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"latest", "step-00000007"}));
  EXPECT_EQ(content_of(folder.path() / "latest"), "step-00000007\n");

  const Checkpoint checkpoint = Checkpoint::open(folder.path(), read);
  EXPECT_EQ(checkpoint.path(), folder.step());
  EXPECT_EQ(checkpoint.state(), some_state);
  EXPECT_EQ(checkpoint.model().config, small_model.write());
  const std::vector<NamedShape> parameters = test::listing_of(small_model).parameters;
  for (const auto& [p, parameter] : ranges::views::enumerate(parameters))
    for (const std::size_t part : {0, 1, 2}) {
      std::vector<float> values(4);
      if (part == 0)
        checkpoint.read_weight(parameter.name, 2, 4, values.data());
      else
        checkpoint.read_state(parameter.name, adamw_states[part - 1], 8, std::as_writable_bytes(std::span(values)));
      for (const auto& [i, value] : ranges::views::enumerate(values))
        EXPECT_EQ(value, value_at(part, p, 2 + static_cast<std::int64_t>(i)));
    }
  EXPECT_NO_THROW(open_model<test::ListedLlama>(folder.step()));
}

TEST(Checkpoint, ANewerStepBecomesLatestAndTheSameStepIsReplaced) {
  const SavedFolder folder;
  save_alone(folder.path(), 9);
  EXPECT_EQ(find_latest(folder.path(), read), folder.path() / "step-00000009");
  LlamaConfig other = small_model;
  other.rope_theta = 777;
  save_alone(folder.path(), 9, other);
  EXPECT_EQ(Checkpoint::open(folder.path(), read).model().config, other.write());
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"latest", "step-00000007", "step-00000009"}));
}

TEST(Checkpoint, AnIncompleteCheckpointIsSkippedWithAWarning) {
  const SavedFolder folder;
  save_alone(folder.path(), 9);
  save_alone(folder.path(), 11);
  std::filesystem::remove(folder.path() / "step-00000011" / "trainer.json");
  std::filesystem::resize_file(folder.path() / "step-00000009" / "optimizer.safetensors", 3000);
  std::filesystem::create_directory(folder.path() / "step-00000013.tmp-1");
  std::vector<std::string> warnings;

  EXPECT_EQ(find_latest(folder.path(), read, append_to(warnings)), folder.step());
  ASSERT_EQ(warnings.size(), 2u);
  test::expect_parts(warnings[0], {"step-00000011/trainer.json: no such file"});
  test::expect_parts(warnings[1], {"cut short"});
  EXPECT_EQ(Checkpoint::open(folder.path(), read, append_to(warnings)).state().step, 7);
  EXPECT_INPUT_ERROR(Checkpoint::open(folder.path() / "step-00000009", read), "cut short");
  EXPECT_INPUT_ERROR(Checkpoint::open(folder.path() / "step-00000011", read), "trainer.json: no such file");
}

TEST(Checkpoint, TheNewestStepIsUsedEvenIfTheLatestFileDisagrees) {
  const SavedFolder folder;
  save_alone(folder.path(), 9);
  std::vector<std::string> warnings;
  const auto opened = [&](std::string_view latest) {
    folder.write("latest", latest);
    warnings.clear();
    return Checkpoint::open(folder.path(), read, append_to(warnings)).state().step;
  };
  EXPECT_EQ(opened("step-00000009\n"), 9);
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(opened("step-00000009\r\n"), 9);
  EXPECT_TRUE(warnings.empty());
  for (const char* latest : {"step-00000007\n", "step-00000008\n", "step-00000007\r\n", "nonsense"}) {
    EXPECT_EQ(opened(latest), 9);
    ASSERT_EQ(warnings.size(), 1u) << latest;
    test::expect_parts(warnings[0], {"the newest checkpoint there is step-00000009"});
  }
  EXPECT_EQ(opened(std::string(1000, 'x')), 9);
  EXPECT_NE(warnings.at(0).find("at most 256 are read"), std::string::npos) << warnings[0];
}

TEST(Checkpoint, AnUnreadableFileIsAnErrorAndNoOlderStepIsUsed) {
  const SavedFolder folder;
  save_alone(folder.path(), 9);
  const std::filesystem::path trainer = folder.path() / "step-00000009" / "trainer.json";
  std::filesystem::remove(trainer);
  std::filesystem::create_symlink("trainer.json", trainer);  // fails with ELOOP, even for root
  EXPECT_INPUT_ERROR(Checkpoint::open(folder.path(), read), "trainer.json: cannot be opened: Too many levels");
  EXPECT_INPUT_ERROR(find_latest(folder.path(), read), "trainer.json: cannot be opened: Too many levels");
}

TEST(Checkpoint, NothingToResumeFromIsAnInputError) {
  const TemporaryFolder folder;
  EXPECT_EQ(find_latest(folder.path(), read), std::nullopt);
  EXPECT_EQ(find_latest(folder.path() / "absent", read), std::nullopt);
  EXPECT_INPUT_ERROR(Checkpoint::open(folder.path(), read), "holds no complete checkpoint");
  EXPECT_INPUT_ERROR(Checkpoint::open(folder.path() / "absent", read), "no such checkpoint");
}

TEST(Checkpoint, ReportsTheFirstDifferenceFromAnotherModel) {
  const SavedFolder folder;
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), read);
  const auto refused = [&](void (*change)(LlamaConfig&), const char* text) {
    LlamaConfig config = small_model;
    change(config);
    EXPECT_INPUT_ERROR(checkpoint.check_same_model(test::listing_of(config)), text);
  };
  EXPECT_NO_THROW(checkpoint.check_same_model(test::listing_of(small_model)));
  refused([](LlamaConfig& c) { c.intermediate_size = 8; },
          "tensor \"model.layers.0.mlp.gate_proj.weight\" has shape [5, 6] in it and [8, 6] in this model");
  refused([](LlamaConfig& c) { c.layers = 3; }, "it has no tensor \"model.layers.2.input_layernorm.weight\"");
  refused([](LlamaConfig& c) { c.layers = 1; }, "its tensor \"model.layers.1.input_layernorm.weight\" of shape [6]");
  refused([](LlamaConfig& c) { c.tied = true; }, "its tensor \"lm_head.weight\"");
  refused([](LlamaConfig& c) { c.heads = 1, c.head_dim = 6, c.kv_heads = 1; }, "k_proj");
  refused([](LlamaConfig& c) { c.rope_theta = 2; }, "rope_theta");
}

TEST(Checkpoint, RefusesAnotherOptimizerByName) {
  const SavedFolder folder;
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), read);
  EXPECT_NO_THROW(checkpoint.check_same_optimizer(states_for(small_model)));
  EXPECT_INPUT_ERROR(checkpoint.check_same_optimizer(states_for(small_model, "muon", {"momentum"})),
                     "was trained with the optimizer adamw, this run's is muon; resume with adamw");
  EXPECT_INPUT_ERROR(checkpoint.check_same_optimizer(states_for(small_model, "adamw", {"exp_avg", "third"})),
                     "has no state \"third\"");
}

/// Converts to a trainer.json of version 1, from before checkpoints had a manifest.
std::string of_version_1(std::string trainer) {
  const std::string version = "\"format_version\": 2";
  return trainer.replace(trainer.find(version), version.size(), "\"format_version\": 1");
}

TEST(Checkpoint, AParameterThatWasFrozenStartsWithZeroOptimizerStates) {
  const TemporaryFolder folder;
  const Listing listing{.parameters = {{"a", {2}}, {"b", {3}}}, .config = "{}\n"};
  const std::vector<StoredState> moments = {{"exp_avg"}, {"exp_avg_sq"}};
  Save save(folder.path(), 1, 1, listing, {.of = {{"a", {}}, {"b", moments}}, .frozen = {"a"}});
  comm::Self<> ranks;
  checkpoint::save(save, ranks, {.step = 1}, [](Save& to) {
    to.write_weight(0, 0, std::array{1.0f, 2.0f});
    for (const int part : {0, 1, 2}) {
      const std::array values = {4.0f, 5.0f, 6.0f + static_cast<float>(part)};
      part == 0 ? to.write_weight(1, 0, values)
                : to.write_state(1, static_cast<std::size_t>(part) - 1, 0, std::as_bytes(std::span(values)));
    }
  });
  const Checkpoint opened = Checkpoint::open(folder.path(), [&](const std::filesystem::path&) { return listing; });
  EXPECT_EQ(SafetensorsFile(opened.path() / "optimizer.safetensors").tensors().size(), 2u);
  EXPECT_NO_THROW(opened.check_same_optimizer({.of = {{"a", moments}, {"b", moments}}}));
  EXPECT_INPUT_ERROR(opened.check_same_optimizer({.of = {{"b", {{"third"}}}}}), "has no state \"third\" of \"b\"");
  std::array<float, 3> values = {9, 9, 9};
  const auto bytes = std::as_writable_bytes(std::span(values));
  opened.read_state("a", "exp_avg", 0, bytes.first(8));
  EXPECT_EQ(values, (std::array<float, 3>{0, 0, 9}));
  opened.read_state("b", "exp_avg_sq", 0, bytes);
  EXPECT_EQ(values, (std::array<float, 3>{4, 5, 8}));
}

TEST(Checkpoint, AnOldCheckpointWithoutAnOptimizerNameIsReadAsAdamW) {
  const SavedFolder folder;
  const std::filesystem::path file = folder.step() / "trainer.json";
  std::string text = content_of(file);
  const std::string line = "  \"optimizer\": \"adamw\",\n";
  ASSERT_NE(text.find(line), std::string::npos) << text;
  folder.write("step-00000007/trainer.json", of_version_1(text.erase(text.find(line), line.size())));
  std::filesystem::remove(folder.step() / "manifest.json");
  EXPECT_NO_THROW(Checkpoint::open(folder.path(), read).check_same_optimizer(states_for(small_model)));
}

TEST(Checkpoint, TrainerJsonContainsTheStateFieldsInOrder) {
  const TemporaryFolder folder;
  Save checkpoint(folder.path(), 7, 1, test::listing_of(small_model), states_for(small_model));
  checkpoint::TrainerState state = some_state;
  const auto after_the_hash = [&] {
    const std::string text = checkpoint.trainer_text(state);
    EXPECT_TRUE(text.starts_with("{\n  \"format_version\": 2,\n  \"sizes_hash\": \"")) << text;
    return text.substr(text.find("  \"optimizer\""));
  };
  state.taken = {4, 3};
  EXPECT_EQ(after_the_hash(), R"(  "optimizer": "adamw",
  "seed": 18446744073709551615,
  "step": 7,
  "tokens": 1234,
  "epoch": 2,
  "index": 5,
  "windows": 6,
  "seq_len": 16,
  "schedule_steps": 100,
  "skipped_steps": 0,
  "loss_scale": {
    "scale": 1024.0,
    "sound_steps": 3
  },
  "best": {
    "loss": 0.1,
    "step": 5,
    "worse": 1
  },
  "taken": [
    4,
    3
  ],
  "run": {
    "data": "1 files",
    "lr": "0.001"
  }
}
)");
  state = {.step = 7, .skipped_steps = 2};
  EXPECT_EQ(after_the_hash(), "  \"optimizer\": \"adamw\",\n  \"step\": 7,\n  \"skipped_steps\": 2\n}\n");
}

TEST(Checkpoint, TrainerJsonIsReadStrictly) {
  const SavedFolder folder;
  const std::filesystem::path step = folder.step();
  const std::string good = of_version_1(content_of(step / "trainer.json"));
  std::filesystem::remove(step / "manifest.json");
  const auto refused = [&](const std::string& from, const std::string& to, const char* message) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    folder.write("step-00000007/trainer.json", text);
    EXPECT_INPUT_ERROR(Checkpoint::open(step, read), message);
  };
  refused("\"format_version\": 1", "\"format_version\": 3", "format version 3; this program reads versions 1 and 2");
  refused("\"step\": 7", "\"step\": -7", "\"step\" must be");
  refused("\"step\": 7", "\"step\": 7.5", "\"step\" must be");
  refused("\"step\": 7", "\"step\": 9223372036854775808", "\"step\" is too large");
  refused("\"step\": 7", "\"stop\": 7", "\"step\" must be");
  refused("\"step\": 7", "\"step\": 7, \"x\": 1", "keys");
  refused("\"step\": 7", "\"step\": 8", "is the folder of step 7, and its trainer.json is of step 8");
  refused("\"skipped_steps\": 0", "\"skipped_steps\": 8", "8 skipped_steps of 7 steps");
  refused("\"optimizer\": \"adamw\"", "\"optimizer\": 1", "\"optimizer\" must be a string");
  refused("\"scale\": 1024.0", "\"scale\": \"1024\"", "\"loss_scale\" must hold a scale and a number of sound_steps");
  refused("\"worse\": 1", "\"worse\": -1", "\"best\" must hold a loss, a step and a number of worse ones");
  refused("\"worse\": 1", "\"worse\": 1, \"x\": 1", "\"best\" must hold");
  refused("\"worse\": 1", "\"w\": 1", "\"best\" must hold");
  refused("\"run\": {", "\"taken\": [1, 2.5], \"run\": {", "\"taken\" must hold numbers of steps");
  refused("\"lr\": \"0.001\"", "\"lr\": 0.001", "\"run\" must hold texts, and \"lr\" is none");
  refused("\"seed\": 18446744073709551615,", "", "\"seed\" must be");
  refused("\"step\": 7", std::string("\"step\": 7\0", 10), "a NUL byte");
  refused("}\n", std::string("}\n\0{", 4), "a NUL byte");
  refused("\"step\": 7", "\"step\": 7, \"step\": 7", "stands twice");
  refused("sizes_hash\": \"", "sizes_hash\": \"0", "config.json is not the one");
  folder.write("step-00000007/trainer.json", good.substr(0, good.size() / 2));
  EXPECT_INPUT_ERROR(Checkpoint::open(step, read), "not valid JSON");
}

TEST(Save, WithoutACommitNoFilesRemain) {
  const TemporaryFolder folder;
  {
    Save checkpoint(folder.path(), 7, 1, test::listing_of(small_model), states_for(small_model));
    checkpoint.create();
    write_share(checkpoint, 0, 1);
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"step-00000007.tmp-1"});
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Save, IfOneRankFailsEveryRankThrowsAndTheOlderCheckpointStays) {
  const TemporaryFolder folder;
  save_alone(folder.path(), 3);
  using Comm = comm::Threads<>;
  const auto fails = [&](const TrainerState& state, const auto& write, const std::string& words) {
    Comm::run(2, {}, [&](Comm& ranks) {
      Save checkpoint(folder.path(), 7, 1, test::listing_of(small_model), states_for(small_model));
      EXPECT_INPUT_ERROR(save(checkpoint, ranks, state, [&](Save& to) { write(to, ranks.rank()); }), words);
      if (ranks.rank() != 0) return;
      EXPECT_EQ(find_latest(folder.path(), read), folder.path() / "step-00000003");
      for (const std::string& name : names_in(folder.path())) EXPECT_EQ(name.find("tmp"), std::string::npos) << name;
    });
  };
  const auto write = [](Save& to, int rank) { write_share(to, rank, 2); };
  TrainerState too_large = some_state;
  too_large.run["large"] = std::string(70'000, 'x');
  fails(too_large, write, "rank 0: checkpoint: the run's own values take");  // before anything is written
  const auto refuse = [&](Save& to, int rank) {
    write(to, rank);
    require<InputError>(rank == 0, "its own reason");
  };
  fails(some_state, refuse, "rank 1: its own reason");
  const auto obstruct = [&](Save& to, int rank) {
    write(to, rank);
    if (rank == 0) folder.write("step-00000007.tmp-1/trainer.json", "in the way");
  };
  fails(some_state, obstruct, "trainer.json: cannot be created");  // fails when rank 0 commits
  Save checkpoint(folder.path(), 8, 1, test::listing_of(small_model), states_for(small_model));
  comm::Self<> alone;
  const auto fail = [](Save&) { throw InputError("this rank's own reason"); };
  EXPECT_INPUT_ERROR(save(checkpoint, alone, some_state, fail), "this rank's own reason");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "step-00000008"));
}

TEST(Save, LeftoversOfAKilledRunAreReplaced) {
  const TemporaryFolder folder;
  folder.write("step-00000007.tmp-1/model.safetensors", "half");
  save_alone(folder.path(), 7);
  EXPECT_EQ(Checkpoint::open(folder.path(), read).state().step, 7);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "step-00000007.tmp-1"));
}

TEST(Save, AnInterruptedReplacementLosesNoCheckpoint) {
  const SavedFolder folder;
  // On a file system without an atomic exchange, the process was killed between the two renames.
  std::filesystem::rename(folder.step(), folder.path() / "step-00000007.replaced");
  folder.write("step-00000007.tmp-1/model.safetensors", "whole");
  EXPECT_EQ(find_latest(folder.path(), read), folder.path() / "step-00000007.replaced");
  EXPECT_EQ(Checkpoint::open(folder.path(), read).state().step, 7);
  Save checkpoint(folder.path(), 9, 1, test::listing_of(small_model), states_for(small_model));
  checkpoint.create();
  checkpoint.abort();
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"latest", "step-00000007"}));
  EXPECT_EQ(Checkpoint::open(folder.path(), read).state().step, 7);
}

TEST(Save, RemovesOlderCheckpointsButNotNewerOrProtectedOnes) {
  const TemporaryFolder folder;
  for (const std::int64_t step : {1, 2, 3, 4, 9}) save_alone(folder.path(), step);
  remove_older(folder.path(), 4, 2, std::array{std::filesystem::path(), folder.path() / "step-00000001"});
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"latest", "step-00000001", "step-00000003", "step-00000004", "step-00000009"}));
  remove_older(folder.path(), 9, 1);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"latest", "step-00000009"}));
}

TEST(RequireRoom, ReportsRequiredAndAvailableDiskSpace) {
  const TemporaryFolder folder;
  std::vector<std::string> warnings;
  const auto asked = [&](std::int64_t rows, std::int64_t kept) {
    Listing listing{.parameters = {{"w", {rows, 1'000'000}}}};
    require_room(folder.path() / "below" / "that", listing, {.of = {{"w", {{"exp_avg"}, {"exp_avg_sq"}}}}}, kept,
                 append_to(warnings));
  };
  EXPECT_NO_THROW(asked(1, 1));
  EXPECT_TRUE(warnings.empty());
  EXPECT_INPUT_ERROR(asked(1'000'000'000, 1), "a checkpoint takes 12000000000");  // 12 PB
  asked(1, 1'000'000'000);
  ASSERT_EQ(warnings.size(), 1u);
  const std::string said = (folder.path() / "below" / "that").string() + ": 1000000000 checkpoints of ";
  EXPECT_TRUE(warnings[0].starts_with(said)) << warnings[0];
  test::expect_parts(warnings[0], {" bytes each will not fit into the "});
  EXPECT_TRUE(warnings[0].ends_with(" bytes that its disk has left")) << warnings[0];
}

TEST(Save, AFullDiskLeavesNothingBehind) {
  const TemporaryFolder folder;
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 5000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string said = test::input_error_of([&] { save_alone(folder.path(), 7); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  test::expect_parts(said, {"is the disk full?"});
  EXPECT_TRUE(names_in(folder.path()).empty());
  folder.write("file", "");
  EXPECT_INPUT_ERROR(save_alone(folder.path() / "file", 7), "cannot be created");
}

TEST(FolderIdentity, ListsSizeAndDigestOfEachModelFileSortedByName) {
  const TemporaryFolder folder;
  folder.write("model.safetensors", "weights");
  folder.write("config.json", "{}");
  folder.write("notes.txt", "anything");
  const std::string text = folder_identity(folder.path());
  EXPECT_LT(text.find("config.json = 2 bytes, digest "), text.find("model.safetensors = 7 bytes, digest "));
  EXPECT_EQ(text.find("notes"), std::string::npos);
  EXPECT_INPUT_ERROR(folder_identity(folder.path() / "nowhere"), "nowhere: cannot be listed: No such file");
}

}  // namespace
}  // namespace fsdp::checkpoint
