// SPDX-License-Identifier: Apache-2.0
// A model.safetensors.index.json next to one shard.
#include <tessera/fsdp/checkpoint/weight_files.hpp>

#include "target.hpp"

FUZZ_TARGET(weight_index) {
  static const std::filesystem::path shard = [] {
    std::string file = {62, 0, 0, 0, 0, 0, 0, 0};  // number of bytes of the header
    file.append(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}        )").append(4, '\0');
    return fsdp::fuzz::written("index/one.safetensors", file);
  }();
  fsdp::fuzz::written("index/model.safetensors.index.json", input);
  fsdp::fuzz::refused_or_read([&] { fsdp::checkpoint::WeightFiles::open(shard.parent_path(), {}); });
}
