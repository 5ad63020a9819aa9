// SPDX-License-Identifier: Apache-2.0
#include <fsdp/checkpoint/folder.hpp>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>

#include "support/listed_llama.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using test::content_of;
using test::TemporaryFolder;

const LlamaConfig small_model = {
    .vocab_size = 11, .hidden_size = 6, .intermediate_size = 5, .layers = 2, .heads = 3, .kv_heads = 1, .head_dim = 2};
const ReadListing read = read_listing<test::ListedLlama>;
const TrainerState some_state = {.step = 7,
                                 .tokens = 1234,
                                 .epoch = 2,
                                 .index = 5,
                                 .seed = 0xffffffffffffffffu,
                                 .windows = 6,
                                 .seq_len = 16,
                                 .schedule_steps = 100};

const std::vector<std::string> adamw_states = {"exp_avg", "exp_avg_sq"};

OptimizerStates states_for(const LlamaConfig& config, const std::string& optimizer = "adamw",
                           const std::vector<std::string>& names = adamw_states) {
  OptimizerStates states{.optimizer = optimizer};
  for (const NamedShape& parameter : test::listing_of(config).parameters) states.of[parameter.name] = names;
  return states;
}

/// A value that differs for every element of a weight (part 0) and of its states.
float value_at(std::size_t part, std::size_t parameter, std::int64_t i) {
  return static_cast<float>(i) + 0.001f * static_cast<float>(parameter) + 1000.0f * static_cast<float>(part);
}

/// Writes what belongs to one of `ranks`: consecutive ranges of every parameter, some of them empty.
void write_share(Save& checkpoint, std::int64_t rank, std::int64_t ranks) {
  for (std::size_t p = 0; p < checkpoint.parameters().size(); ++p) {
    const std::int64_t elements = elements_of(checkpoint.parameters()[p].shape);
    const std::int64_t length = (elements + ranks - 1) / ranks;
    const std::int64_t begin = std::min(rank * length, elements), end = std::min(begin + length, elements);
    for (std::size_t part = 0; part < 3; ++part) {
      std::vector<float> values;
      for (std::int64_t i = begin; i < end; ++i) values.push_back(value_at(part, p, i));
      if (part == 0)
        checkpoint.write_weight(p, begin, values);
      else
        checkpoint.write_state(p, part - 1, begin, values);
    }
  }
}

void save_alone(const std::filesystem::path& dir, std::int64_t step, const LlamaConfig& config = small_model) {
  TrainerState state = some_state;
  state.step = step;
  Save checkpoint(dir, step, 1, test::listing_of(config), states_for(config));
  save(
      checkpoint, 0, state, [](bool ok) { return ok; }, [](Save& s) { write_share(s, 0, 1); });
}

std::vector<std::string> names_in(const std::filesystem::path& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

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
    for (const auto& each : saves) each->sync();
    saves[0]->commit(some_state);
    for (const char* file : {"config.json", "model.safetensors", "optimizer.safetensors", "trainer.json"})
      EXPECT_EQ(content_of(dir / "step-00000007" / file), content_of(folder.path() / "1" / "step-00000007" / file))
          << file;
  }
}

TEST(Checkpoint, ReadsBackEveryBitAndThePosition) {
  const TemporaryFolder folder;
  save_alone(folder.path(), 7);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"latest", "step-00000007"}));
  EXPECT_EQ(content_of(folder.path() / "latest"), "step-00000007\n");

  const Checkpoint checkpoint = Checkpoint::open(folder.path(), read);
  EXPECT_EQ(checkpoint.path(), folder.path() / "step-00000007");
  EXPECT_EQ(checkpoint.state(), some_state);
  EXPECT_EQ(checkpoint.model().config, small_model.write());
  const std::vector<NamedShape> parameters = test::listing_of(small_model).parameters;
  for (std::size_t p = 0; p < parameters.size(); ++p)
    for (std::size_t part = 0; part < 3; ++part) {
      std::vector<float> values(4);
      if (part == 0)
        checkpoint.read_weight(parameters[p].name, 2, 4, values.data());
      else
        checkpoint.read_state(parameters[p].name, adamw_states[part - 1], 2, 4, values.data());
      for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], value_at(part, p, 2 + i));
    }
  EXPECT_NO_THROW(open_model<test::ListedLlama>(folder.path() / "step-00000007"));
}

TEST(Checkpoint, ANewerOneBecomesTheLatestAndTheSameStepIsReplaced) {
  const TemporaryFolder folder;
  save_alone(folder.path(), 7);
  save_alone(folder.path(), 9);
  EXPECT_EQ(find_latest(folder.path(), read), folder.path() / "step-00000009");
  LlamaConfig other = small_model;
  other.rope_theta = 777;
  save_alone(folder.path(), 9, other);
  EXPECT_EQ(Checkpoint::open(folder.path(), read).model().config, other.write());
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"latest", "step-00000007", "step-00000009"}));
}

TEST(Checkpoint, AnIncompleteOneIsSkippedWithAWarning) {
  const TemporaryFolder folder;
  save_alone(folder.path(), 7);
  save_alone(folder.path(), 9);
  save_alone(folder.path(), 11);
  std::filesystem::remove(folder.path() / "step-00000011" / "trainer.json");
  std::filesystem::resize_file(folder.path() / "step-00000009" / "optimizer.safetensors", 3000);
  std::filesystem::create_directory(folder.path() / "step-00000013.tmp-1");
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& text) { warnings.push_back(text); };

  EXPECT_EQ(find_latest(folder.path(), read, warn), folder.path() / "step-00000007");
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("step-00000011/trainer.json: no such file"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[1].find("cut short"), std::string::npos) << warnings[1];
  EXPECT_EQ(Checkpoint::open(folder.path(), read, warn).state().step, 7);
  EXPECT_INPUT_ERROR(Checkpoint::open(folder.path() / "step-00000009", read), "cut short");
  EXPECT_INPUT_ERROR(Checkpoint::open(folder.path() / "step-00000011", read), "trainer.json: no such file");
}

TEST(Checkpoint, NothingToResumeFromIsAnInputError) {
  const TemporaryFolder folder;
  EXPECT_EQ(find_latest(folder.path(), read), std::nullopt);
  EXPECT_EQ(find_latest(folder.path() / "absent", read), std::nullopt);
  EXPECT_INPUT_ERROR(Checkpoint::open(folder.path(), read), "holds no complete checkpoint");
  EXPECT_INPUT_ERROR(Checkpoint::open(folder.path() / "absent", read), "no such checkpoint");
}

TEST(Checkpoint, AnotherModelIsNamedByItsFirstDifference) {
  const TemporaryFolder folder;
  save_alone(folder.path(), 7);
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), read);
  const auto said = [&](auto change) {
    LlamaConfig config = small_model;
    change(config);
    return test::input_error_of([&] { checkpoint.check_same_model(test::listing_of(config)); });
  };
  const auto has = [](const std::string& sentence, const std::string& text) {
    EXPECT_NE(sentence.find(text), std::string::npos) << sentence;
  };
  EXPECT_NO_THROW(checkpoint.check_same_model(test::listing_of(small_model)));
  has(said([](LlamaConfig& c) { c.intermediate_size = 8; }),
      "tensor \"model.layers.0.mlp.gate_proj.weight\" has shape [5, 6] in it and [8, 6] in this model");
  has(said([](LlamaConfig& c) { c.layers = 3; }), "it has no tensor \"model.layers.2.input_layernorm.weight\"");
  has(said([](LlamaConfig& c) { c.layers = 1; }), "its tensor \"model.layers.1.input_layernorm.weight\" of shape [6]");
  has(said([](LlamaConfig& c) { c.tied = true; }), "its tensor \"lm_head.weight\"");
  has(said([](LlamaConfig& c) { c.heads = 1, c.head_dim = 6, c.kv_heads = 1; }), "k_proj");
  has(said([](LlamaConfig& c) { c.rope_theta = 2; }), "rope_theta");
}

TEST(Checkpoint, AnotherOptimizerIsRefusedByName) {
  const TemporaryFolder folder;
  save_alone(folder.path(), 7);
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), read);
  EXPECT_NO_THROW(checkpoint.check_same_optimizer(states_for(small_model)));
  EXPECT_INPUT_ERROR(checkpoint.check_same_optimizer(states_for(small_model, "muon", {"momentum"})),
                     "was trained with the optimizer adamw, this run's is muon; resume with --optimizer adamw");
  EXPECT_INPUT_ERROR(checkpoint.check_same_optimizer(states_for(small_model, "adamw", {"exp_avg", "third"})),
                     "has no state \"third\"");
}

TEST(Checkpoint, OneFromBeforeOptimizersHadNamesIsAdamWs) {
  const TemporaryFolder folder;
  save_alone(folder.path(), 7);
  const std::filesystem::path file = folder.path() / "step-00000007" / "trainer.json";
  std::string text = content_of(file);
  const std::string line = "  \"optimizer\": \"adamw\",\n";
  ASSERT_NE(text.find(line), std::string::npos) << text;
  folder.write("step-00000007/trainer.json", text.erase(text.find(line), line.size()));
  EXPECT_NO_THROW(Checkpoint::open(folder.path(), read).check_same_optimizer(states_for(small_model)));
}

TEST(Checkpoint, TrainerJsonIsReadStrictly) {
  const TemporaryFolder folder;
  save_alone(folder.path(), 7);
  const std::filesystem::path step = folder.path() / "step-00000007";
  const std::string good = content_of(step / "trainer.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    folder.write("step-00000007/trainer.json", text);
    return test::input_error_of([&] { Checkpoint::open(step, read); });
  };
  const auto has = [](const std::string& sentence, const std::string& text) {
    EXPECT_NE(sentence.find(text), std::string::npos) << sentence;
  };
  has(with("\"format_version\": 1", "\"format_version\": 2"), "format version 2; this program reads version 1");
  has(with("\"step\": 7", "\"step\": -7"), "\"step\" must be");
  has(with("\"step\": 7", "\"step\": 7.5"), "\"step\" must be");
  has(with("\"step\": 7", "\"step\": 9223372036854775808"), "\"step\" is too large");
  has(with("\"step\": 7", "\"stop\": 7"), "\"step\" must be");
  has(with("\"step\": 7", "\"step\": 7, \"x\": 1"), "keys");
  has(with("\"step\": 7", "\"step\": 7, \"step\": 7"), "stands twice");
  has(with("sizes_hash\": \"", "sizes_hash\": \"0"), "config.json is not the one");
  folder.write("step-00000007/trainer.json", good.substr(0, good.size() / 2));
  EXPECT_INPUT_ERROR(Checkpoint::open(step, read), "not valid JSON");
}

TEST(Save, WithoutCommitNothingRemains) {
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
  for (const int stage : {0, 1, 2}) {  // the stage at which another rank reports a failure
    Save checkpoint(folder.path(), 7, 1, test::listing_of(small_model), states_for(small_model));
    int calls = 0;
    const auto all = [&](bool ok) { return ok && calls++ != stage; };
    const auto write = [](Save& s) { write_share(s, 0, 1); };
    EXPECT_INPUT_ERROR(save(checkpoint, 0, some_state, all, write), "another rank could not write");
    EXPECT_EQ(find_latest(folder.path(), read), folder.path() / (stage < 2 ? "step-00000003" : "step-00000007"));
    for (const std::string& name : names_in(folder.path())) EXPECT_EQ(name.find("tmp"), std::string::npos) << name;
  }
  Save checkpoint(folder.path(), 8, 1, test::listing_of(small_model), states_for(small_model));
  const auto fail = [](Save&) { throw InputError("this rank's own reason"); };
  EXPECT_INPUT_ERROR(save(
                         checkpoint, 0, some_state, [](bool ok) { return ok; }, fail),
                     "this rank's own reason");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "step-00000008"));
}

TEST(Save, ALeftoverOfAKilledRunIsReplaced) {
  const TemporaryFolder folder;
  folder.write("step-00000007.tmp-1/model.safetensors", "half");
  save_alone(folder.path(), 7);
  EXPECT_EQ(Checkpoint::open(folder.path(), read).state().step, 7);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "step-00000007.tmp-1"));
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
  EXPECT_NE(said.find("is the disk full?"), std::string::npos) << said;
  EXPECT_TRUE(names_in(folder.path()).empty());
  folder.write("file", "");
  EXPECT_INPUT_ERROR(save_alone(folder.path() / "file", 7), "cannot be created");
}

}  // namespace
}  // namespace fsdp::checkpoint
