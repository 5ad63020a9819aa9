// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/weight_files.hpp>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using test::TemporaryFolder;

constexpr const char* index_file = "model.safetensors.index.json";

/// Writes vectors of length 3 whose values count up from `first`.
void write_shard(const std::filesystem::path& path, const std::vector<std::string>& names, float first) {
  std::vector<NamedShape> tensors;
  for (const std::string& name : names) tensors.push_back({name, {3}});
  SharedFile file = SharedFile::create(path, plan_file(tensors));
  for (std::size_t i = 0; i < names.size(); ++i, first += 3)
    file.write_range(i, 0, std::vector<float>{first, first + 1, first + 2});
  file.finish();
}

/// Two shards and their index: "a" and "c" in the first, "b" in the second.
struct Sharded : TemporaryFolder {
  Sharded() {
    write_shard(path() / "one.safetensors", {"a", "c"}, 0);
    write_shard(path() / "two.safetensors", {"b"}, 10);
    index(R"({"a":"one.safetensors","b":"two.safetensors","c":"one.safetensors"})");
  }
  void index(const std::string& map) const {
    std::filesystem::remove(path() / index_file);
    write(index_file, R"({"metadata":{"total_size":36},"weight_map":)" + map + "}");
  }
};

std::vector<float> values_of(const WeightFiles& files, const std::string& name, std::int64_t begin = 0) {
  std::vector<float> values(static_cast<std::size_t>(3 - begin));
  files.read_range(name, begin, 3 - begin, values.data());
  return values;
}

TEST(WeightFiles, ReadsRangesOfTensorsInAnyShard) {
  const Sharded folder;
  const WeightFiles files = WeightFiles::open(folder.path());
  EXPECT_EQ(files.files().size(), 2u);
  ASSERT_EQ(files.tensors().size(), 3u);
  EXPECT_EQ(files.tensors()[1]->name, "b");
  EXPECT_EQ(values_of(files, "a"), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(values_of(files, "b", 1), (std::vector<float>{11, 12}));
  EXPECT_EQ(values_of(files, "c"), (std::vector<float>{3, 4, 5}));
  EXPECT_EQ(files.find("d"), nullptr);
  EXPECT_INPUT_ERROR(values_of(files, "d"), "model.safetensors.index.json: has no tensor \"d\"");
}

TEST(WeightFiles, FollowsSymbolicLinksAsInTheHuggingFaceCache) {
  const Sharded blobs;
  const TemporaryFolder snapshot;
  for (const char* const name : {"one.safetensors", "two.safetensors", index_file})
    std::filesystem::create_symlink(blobs.path() / name, snapshot.path() / name);
  EXPECT_EQ(values_of(WeightFiles::open(snapshot.path()), "b"), (std::vector<float>{10, 11, 12}));
  EXPECT_TRUE(holds_weights(snapshot.path()));
}

TEST(WeightFiles, ASingleFileTakesPrecedenceOverAnIndexWithAWarning) {
  const Sharded folder;
  write_shard(folder.path() / "model.safetensors", {"x"}, 7);
  std::string warning;
  const WeightFiles files = WeightFiles::open(folder.path(), [&](const std::string& text) { warning = text; });
  EXPECT_EQ(values_of(files, "x"), (std::vector<float>{7, 8, 9}));
  test::expect_parts(warning, {"holds both model.safetensors and model.safetensors.index.json; the first is read"});
}

TEST(WeightFiles, ReportsDisagreementsBetweenAnIndexAndItsShards) {
  const Sharded folder;
  const auto open = [&] { WeightFiles::open(folder.path()); };
  folder.index(R"({"a":"one.safetensors","b":"one.safetensors","c":"one.safetensors"})");
  EXPECT_INPUT_ERROR(open(), "says that tensor \"b\" is in one.safetensors, which does not hold it");
  folder.index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  EXPECT_INPUT_ERROR(open(), "one.safetensors: holds tensor \"c\", which model.safetensors.index.json does not list");
  std::filesystem::remove(folder.path() / "two.safetensors");
  write_shard(folder.path() / "two.safetensors", {"a", "b"}, 0);  // "a" is in both shards
  folder.index(R"({"a":"one.safetensors","b":"two.safetensors","c":"one.safetensors"})");
  EXPECT_INPUT_ERROR(open(), "two.safetensors: holds tensor \"a\", which");
  std::filesystem::remove(folder.path() / "two.safetensors");
  EXPECT_INPUT_ERROR(open(), "names 2 files, of which 1 is missing: two.safetensors; download the folder again");
  std::filesystem::create_symlink("nowhere", folder.path() / "two.safetensors");
  EXPECT_INPUT_ERROR(open(), "two.safetensors: cannot be opened: it is a broken symbolic link to nowhere; if it");
}

TEST(WeightFiles, AnIndexMayReferToFilesOfItsOwnFolderOnly) {
  const Sharded folder;
  for (const char* const name :
       {"../one.safetensors", "/etc/one.safetensors", "sub/one.safetensors", "..", "", "a\\\\b"}) {
    folder.index(R"({"a":")" + std::string(name) + R"("})");
    EXPECT_INPUT_ERROR(WeightFiles::open(folder.path()), "an index may name files of its own folder alone");
  }
  folder.index(R"({"a":7})");
  EXPECT_INPUT_ERROR(WeightFiles::open(folder.path()), "the file of tensor \"a\" is not a text");
  folder.index("{}");
  EXPECT_INPUT_ERROR(WeightFiles::open(folder.path()), "has no \"weight_map\"");
  std::filesystem::remove(folder.path() / index_file);
  folder.write(index_file, "[]");
  EXPECT_INPUT_ERROR(WeightFiles::open(folder.path()), "has no \"weight_map\"");
}

TEST(WeightFiles, AnOversizedIndexIsRefused) {
  const Sharded folder;
  std::filesystem::resize_file(folder.path() / index_file, 25'000'001);
  EXPECT_INPUT_ERROR(WeightFiles::open(folder.path()),
                     "model.safetensors.index.json: 25000001 bytes; at most 25000000 are read");
}

/// A folder without the usual file names may contain weights in another format.
TEST(WeightFiles, ReportsUnsupportedWeightFormats) {
  const std::string zip("PK\3\4 of torch"), lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  const std::string form = ", a form of weights that is not read; download model.safetensors, or convert it";
  const struct {
    std::string name, content, sentence;
  } cases[] = {
      {"model-00001-of-00002.safetensors", "",
       " but no model.safetensors.index.json, which says what is in the shards"},
      {"model.fp16.safetensors", "x", " but no model.safetensors, which is read; download that, or give the file"},
      {"adapter_model.safetensors", "x", ", adapters; give the folder of their model"},
      {"adapter_model.bin", "x", ", adapters; give the folder of their model"},
      {"model.safetensors.index.fp16.json", "{}", form},
      {"pytorch_model.bin", "", form},
      {"pytorch_model.bin.index.json", "{}", form},
      {"consolidated.00.pth", "x", form},
      {"Model-Q4_K_M.GGUF", "x", form},
      {"flax_model.msgpack", "x", form},
      {"tf_model.h5", "x", form},
      {"last.ckpt", "x", form},
      {"weights.pt", "x", form},
      {"weights.bin", zip, form},
      {"empty.bin", "", form},
      {"original/consolidated.00.pth", "x", form},
      {"inner/model.safetensors", "x", " but no model.safetensors of its own; name the folder inside"},
      {"a/b/c/model.safetensors", "x", " but no model.safetensors of its own; name the folder inside"},
      {"Unconfirmed 7.crdownload", "x", ", a part of a download; download the folder again"},
      {"model.safetensors.crdownload", "x", ", a part of a download; download the folder again"},
      {"model.safetensors.part", "x", ", a part of a download; download the folder again"},
      {"weights", lfs, ", a Git LFS pointer; fetch the files by `git lfs pull`"},
      {".cache/huggingface/download/x.1.incomplete", "x", ", a part of a download; download the folder again"}};
  for (const auto& [name, content, sentence] : cases) {
    const TemporaryFolder folder;
    folder.write("config.json", "{}");
    folder.write(name, content);
    const std::string said = folder.path().string() + ": holds " + name + sentence;
    EXPECT_INPUT_ERROR(holds_weights(folder.path()), said);
    EXPECT_INPUT_ERROR(WeightFiles::open(folder.path()), said);
    EXPECT_EQ(test::input_error_of([&] { holds_weights(folder.path()); }).find(" --"), std::string::npos);
  }
  const TemporaryFolder folder;
  std::filesystem::create_symlink("nowhere", folder.path() / "weights.bin");
  EXPECT_INPUT_ERROR(holds_weights(folder.path()), ": holds weights.bin, a form of weights");
}

TEST(WeightFiles, OtherFilesAreNotMistakenForWeights) {
  const TemporaryFolder folder;
  for (const char* const name : {"README.pt.md", "tokens.bin", "notes", "step-1/deeper/model.safetensors",
                                 "runs/step-1/model.safetensors", "a/b/c/d/model.safetensors", ".git/x.pt"})
    folder.write(name, "some bytes");
  folder.write("training_args.bin", "PK\3\4");
  folder.write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_FALSE(holds_weights(folder.path()));
  EXPECT_INPUT_ERROR(holds_weights(folder.path() / "absent"), "absent: cannot be listed: No such file");
}

TEST(WeightFiles, ReportsAGitLfsPointer) {
  const TemporaryFolder folder;
  folder.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n");
  EXPECT_INPUT_ERROR(WeightFiles::open(folder.path()),
                     "model.safetensors: is a Git LFS pointer, a text in place of the "
                     "file; fetch the file by `git lfs pull`");
}

TEST(WeightFiles, ReportsAnIndexThatIsAnHtmlPage) {
  const TemporaryFolder folder;
  folder.write(index_file, "\n<!DOCTYPE html><title>404</title>");
  EXPECT_INPUT_ERROR(WeightFiles::open(folder.path()),
                     "model.safetensors.index.json: is a page of HTML, such as servers send in place of a file");
}

TEST(WeightFiles, AFolderWithoutWeightsIsAnError) {
  const TemporaryFolder folder;
  EXPECT_FALSE(holds_weights(folder.path()));
  EXPECT_INPUT_ERROR(WeightFiles::open(folder.path()), "holds neither model.safetensors nor model.safetensors.index");
  folder.write(index_file, "{}");
  EXPECT_TRUE(holds_weights(folder.path()));
}

}  // namespace
}  // namespace fsdp::checkpoint
