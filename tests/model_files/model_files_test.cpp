// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/model_files/model_files.hpp>

#include <algorithm>

#include <gtest/gtest.h>

#include <tessera/fsdp/model_files/export.hpp>

#include "support/listed_llama.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using test::golden;
using test::TemporaryFolder;

LlamaConfig tied_tiny() {
  LlamaConfig config = llama_preset("tiny");
  config.tied = true;
  return config;
}

/// Writes a folder of this model with these tensors, all zero.
void write_model(const TemporaryFolder& folder, const LlamaConfig& config, std::vector<NamedShape> tensors) {
  folder.write("config.json", config.write());
  SharedFile::create(folder.path() / "model.safetensors", plan_file(std::move(tensors))).finish();
}

/// Changes one value in such a folder.
void change_value(const TemporaryFolder& folder, const std::vector<NamedShape>& tensors, const std::string& name,
                  std::int64_t index, float value) {
  const auto place = std::ranges::find(tensors, name, &NamedShape::name) - tensors.begin();
  SharedFile file = SharedFile::join(folder.path() / "model.safetensors", plan_file(tensors));
  file.write_range(static_cast<std::size_t>(place), index, std::vector{value});
  file.finish();
}

TEST(OpenModel, ReadsTheGoldenFolders) {
  for (const char* name : {"llama-gqa", "llama-odd"}) {
    const ModelFiles model = open_model<test::ListedLlama>(golden(name));
    EXPECT_EQ(model.weights.tensors().size(), model.listing.parameters.size());
  }
}

TEST(OpenModel, AcceptsAStoredCopyOfATiedHeadAndIgnoresRotaryCaches) {
  const TemporaryFolder folder;
  std::vector<NamedShape> tensors = test::listing_of(tied_tiny()).parameters;
  tensors.push_back({"lm_head.weight", {256, 96}});
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {8}});
  write_model(folder, tied_tiny(), tensors);
  const auto open = [&] {
    open_model<test::ListedLlama>(folder.path(), [](const std::string& text) { ADD_FAILURE() << text; });
  };
  open();
  change_value(folder, tensors, "lm_head.weight", 256 * 96 - 1, 0.5f);
  EXPECT_INPUT_ERROR(open(),
                     "model.safetensors: lm_head.weight[24575] is 0.5 and model.embed_tokens.weight[24575] is 0; "
                     "the config ties them, so that one would be dropped. Set \"tie_word_embeddings\" to false");
  change_value(folder, tensors, "model.embed_tokens.weight", 256 * 96 - 1, 0.5f);
  open();
  tensors[tensors.size() - 2].shape = {255, 96};
  std::filesystem::remove(folder.path() / "model.safetensors");
  write_model(folder, tied_tiny(), tensors);
  EXPECT_INPUT_ERROR(open(), "lm_head.weight has shape [255, 96] and model.embed_tokens.weight has [256, 96]");
}

TEST(OpenModel, AStoredCopyOfATiedHeadMayHaveAnotherDtype) {
  const TemporaryFolder folder;
  const auto shard = [&](const char* name, const char* tensor, DType type, float value) {
    std::filesystem::remove(folder.path() / name);
    SharedFile file = SharedFile::create(folder.path() / name, plan_file({{tensor, {256, 96}}}, {}, type));
    file.write_range(0, 7, std::vector{value});
    file.finish();
  };
  const LlamaConfig config = tied_tiny();
  std::vector<NamedShape> tensors = test::listing_of(config).parameters;
  std::string map = R"("model.embed_tokens.weight":"b.safetensors","lm_head.weight":"c.safetensors")";
  std::erase_if(tensors, [](const NamedShape& tensor) { return tensor.name == "model.embed_tokens.weight"; });
  for (const NamedShape& tensor : tensors) map += ",\"" + tensor.name + R"(":"a.safetensors")";
  folder.write("config.json", config.write());
  folder.write("model.safetensors.index.json", R"({"weight_map":{)" + map + "}}");
  SharedFile::create(folder.path() / "a.safetensors", plan_file(tensors)).finish();
  shard("b.safetensors", "model.embed_tokens.weight", DType::bf16, 1.25f);
  shard("c.safetensors", "lm_head.weight", DType::f32, 1.2503f);  // rounds to the same bf16
  EXPECT_NO_THROW(open_model<test::ListedLlama>(folder.path()));
  shard("c.safetensors", "lm_head.weight", DType::f32, 1.26f);
  EXPECT_INPUT_ERROR(open_model<test::ListedLlama>(folder.path()), "lm_head.weight[7] is 1.26 and ");
}

TEST(OpenModel, ListsUpToTenMissingAndUnknownNames) {
  const TemporaryFolder folder;
  std::vector<NamedShape> tensors = test::listing_of(llama_preset("tiny")).parameters;
  tensors.erase(tensors.begin() + 2, tensors.begin() + 14);
  tensors.push_back({"extra", {1}});
  write_model(folder, llama_preset("tiny"), tensors);
  const std::string said = test::input_error_of([&] { open_model<test::ListedLlama>(folder.path()); });
  test::expect_parts(said, {"lacks 12 tensors of the model: model.layers.0.self_attn.q_proj.weight, "});
  test::expect_parts(said, {" and 2 more; and has unknown ones: extra"});
}

TEST(OpenModel, ReadsNamesWithAWrapperPrefixAndReportsIt) {
  const std::vector<NamedShape> own = test::listing_of(llama_preset("tiny")).parameters;
  const std::vector<NamedShape> tied = test::listing_of(tied_tiny()).parameters;
  const auto opened = [](const LlamaConfig& config, std::vector<NamedShape> tensors, const auto& rename) {
    const TemporaryFolder folder;
    for (NamedShape& tensor : tensors) tensor.name = rename(tensor.name);
    write_model(folder, config, tensors);
    std::string warning;
    const ModelFiles model =
        open_model<test::ListedLlama>(folder.path(), [&](const std::string& text) { warning = text; });
    for (const NamedShape& tensor : model.listing.parameters) EXPECT_NE(model.weights.find(tensor.name), nullptr);
    return warning.substr(warning.find(": ") + 2);
  };
  const auto behind = [](std::string prefix) { return [prefix](const std::string& name) { return prefix + name; }; };
  const std::string so = "; they are read by the model's names", all = message("all ", own.size(), " names ");
  EXPECT_EQ(opened(llama_preset("tiny"), own, behind("_orig_mod.")),
            all + "begin with _orig_mod. (torch.compile)" + so);
  EXPECT_EQ(opened(llama_preset("tiny"), own, behind("module._orig_mod.")),
            all + "begin with module._orig_mod. (DistributedDataParallel, torch.compile)" + so);
  EXPECT_EQ(opened(llama_preset("tiny"), own, behind("student.")), all + "begin with student." + so);
  EXPECT_EQ(opened(tied_tiny(), tied, behind("base_model.model.")),
            message("all ", tied.size(), " names begin with base_model.model. (PEFT)", so));
  EXPECT_EQ(opened(tied_tiny(), tied, [](const std::string& name) { return name.substr(6); }),  // model.
            message("all ", tied.size(), " names lack model., as in a file of the model without its head", so));
  EXPECT_EQ(opened(llama_preset("tiny"), own,
                   [](std::string name) {
                     const std::size_t layer = name.find("mlp.");
                     return layer == name.npos ? name : name.insert(layer, "_checkpoint_wrapped_module.");
                   }),
            message("9 of ", own.size(), " names contain _checkpoint_wrapped_module. (checkpointed activations)", so));
  EXPECT_EQ(opened(llama_preset("tiny"), own,
                   [](const std::string& name) {
                     return name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
                   }),
            message(own.size() - 1, " of ", own.size(), " names begin with model.language_model. (the text part of a ",
                    "larger model) instead of model.", so));
}

TEST(OpenModel, ReportsThePrefixTogetherWithOtherDifferences) {
  const TemporaryFolder folder;
  std::vector<NamedShape> tensors = test::listing_of(llama_preset("tiny")).parameters;
  for (NamedShape& tensor : tensors) tensor.name = "language_model." + tensor.name;
  tensors.push_back({"vision_tower.weight", {1}});
  write_model(folder, llama_preset("tiny"), tensors);
  const auto names = std::to_string(tensors.size() - 1), all = std::to_string(tensors.size());
  EXPECT_INPUT_ERROR(open_model<test::ListedLlama>(folder.path()),
                     names + " of " + all + " names begin with language_model. (the text part of a larger model); " +
                         "without this difference the file has 1 tensor that the model lacks: vision_tower.weight");
  tensors = test::listing_of(llama_preset("tiny")).parameters;
  std::erase_if(tensors, [](const NamedShape& tensor) { return tensor.name == "lm_head.weight"; });
  for (NamedShape& tensor : tensors) tensor.name = tensor.name.substr(6);
  std::filesystem::remove(folder.path() / "model.safetensors");
  write_model(folder, llama_preset("tiny"), tensors);
  EXPECT_INPUT_ERROR(open_model<test::ListedLlama>(folder.path()),
                     "names lack model., as in a file of the model without its head; without this difference the file "
                     "lacks 1 tensor of the model: lm_head.weight");
}

TEST(ExportModel, CountsAdapterUpdatesThatRoundingLoses) {
  LlamaConfig config = llama_preset("tiny");
  config.lora = {.rank = 1, .alpha = 1, .targets = "q_proj"};
  const std::vector<NamedShape> tensors = test::listing_of(config).parameters;
  const std::string module = "model.layers.0.self_attn.q_proj";
  const auto merged = [&](DType dtype, float base, float product) {
    const TemporaryFolder folder;
    write_model(folder, config, tensors);
    change_value(folder, tensors, module + ".weight", 0, base);
    change_value(folder, tensors, module + ".lora_A.weight", 0, 1);
    change_value(folder, tensors, module + ".lora_B.weight", 0, product);
    return *export_model({.from = folder.path(), .to = folder.path() / "out", .dtype = dtype, .merge = true},
                         read_listing<test::ListedLlama>, {}, {})
                .merge;
  };
  const MergeEffect lost = merged(DType::bf16, 1, 0x1p-10f);  // below half the distance to the next bf16 value
  EXPECT_EQ(lost.weights, 3 * 96 * 96);
  EXPECT_EQ(lost.changed, 0);
  EXPECT_EQ(lost.lost_share(), 1);
  const MergeEffect rounded = merged(DType::bf16, 1, 0x1.8p-8f);  // rounds to 2^-7
  EXPECT_EQ(rounded.changed, 1);
  EXPECT_DOUBLE_EQ(rounded.lost_share(), 1. / 3);
  EXPECT_EQ(merged(DType::bf16, 0, 0x1p-10f).lost_share(), 0);
  EXPECT_EQ(merged(DType::f16, 1, 0x1p-10f).lost_share(), 0);
  EXPECT_EQ(merged(DType::f32, 1, 0x1p-10f).lost_share(), 0);
  EXPECT_EQ(merged(DType::f32, 1, 0x1p-30f).lost_share(), 1);
  EXPECT_EQ(merged(DType::f32, 1, 0).wanted, 0);
}

TEST(OpenModel, ReportsWrongShapesAndMissingOrTruncatedFiles) {
  const TemporaryFolder folder;
  std::vector<NamedShape> tensors = test::listing_of(llama_preset("tiny")).parameters;
  tensors[4].shape = {96, 32};
  write_model(folder, llama_preset("tiny"), tensors);
  EXPECT_INPUT_ERROR(open_model<test::ListedLlama>(folder.path()),
                     "self_attn.v_proj.weight\" has shape [96, 32] where the model has [32, 96]");
  std::filesystem::resize_file(folder.path() / "model.safetensors", 100000);
  EXPECT_INPUT_ERROR(open_model<test::ListedLlama>(folder.path()), "model.safetensors: its tensors take");
  std::filesystem::remove(folder.path() / "model.safetensors");
  EXPECT_INPUT_ERROR(open_model<test::ListedLlama>(folder.path()),
                     "holds neither model.safetensors nor model.safetensors.index.json");
  std::filesystem::remove(folder.path() / "config.json");
  EXPECT_INPUT_ERROR(open_model<test::ListedLlama>(folder.path()), "config.json: no such file");
  EXPECT_INPUT_ERROR(open_model<test::ListedLlama>(folder.path() / "absent"), "no such folder");
}

}  // namespace
}  // namespace fsdp::checkpoint
