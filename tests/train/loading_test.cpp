// SPDX-License-Identifier: Apache-2.0
// Weights are read from disk once: each rank reads only the ranges of its own shards.
#include <tessera/fsdp/model_files/load.hpp>

#include <fstream>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/models/llama.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

using Comm = comm::Threads<>;
using Model = Llama<Stack<FullyShard<>, Comm, Fp32, tiling::RunTimeTiling>>;

/// The number of bytes that this process has read; negative if the system does not report it.
std::int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::int64_t bytes = -1;
  return file >> name >> bytes && name == "rchar:" ? bytes : -1;
}

/// Writes a folder of 7 MB in two shards.
struct Folder : test::TemporaryFolder {
  Folder() : config(llama_preset("tiny")) {
    config.hidden_size = 192;
    config.intermediate_size = 512;
    config.layers = 5;
    write("config.json", config.write());
    std::vector<checkpoint::NamedShape> parts[2];
    std::string map;
    for (const checkpoint::NamedShape& tensor : checkpoint::listing_of(Model(config)).parameters) {
      const std::size_t part = parts[1].size() < parts[0].size() ? 1 : 0;
      parts[part].push_back(tensor);
      map += (map.empty() ? "\"" : ",\"") + tensor.name + "\":\"" + std::to_string(part) + ".safetensors\"";
    }
    for (std::size_t part = 0; part < 2; ++part) {
      auto file = checkpoint::SharedFile::create(path() / (std::to_string(part) + ".safetensors"),
                                                 checkpoint::plan_file(parts[part]));
      bytes += file.plan().file_bytes;
      file.finish();
    }
    write("model.safetensors.index.json", R"({"weight_map":{)" + map + "}}");
  }
  LlamaConfig config;
  std::int64_t bytes = 0;
};

TEST(Loading, ReadsEachWeightByteOnceOnAnyNumberOfRanks) {
  if (bytes_read() < 0) GTEST_SKIP() << "/proc/self/io does not tell what was read";
  const Folder folder;
  ASSERT_GT(folder.bytes, 7'000'000);
  for (const int ranks : {1, 2, 8}) {
    const std::int64_t before = bytes_read();
    Comm::run(ranks, {}, [&](Comm& communicator) {
      ShardedModel<Model> module(communicator, Model(folder.config), {}, RunShape{.size = {.sequence_length = 4}});
      load_agreed_weights(communicator, module, folder.path().string(), {}, {});
    });
    const std::int64_t found = bytes_read() - before;
    EXPECT_GE(found, folder.bytes) << ranks << " ranks";
    EXPECT_LE(static_cast<double>(found), 1.02 * static_cast<double>(folder.bytes) + ranks * 50e3) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace fsdp::train
