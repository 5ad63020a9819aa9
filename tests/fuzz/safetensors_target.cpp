// SPDX-License-Identifier: Apache-2.0
// A file of tensors. The input is the header; 64 bytes of data follow.
#include <array>

#include <tessera/fsdp/checkpoint/safetensors.hpp>

#include "target.hpp"

FUZZ_TARGET(safetensors) {
  const std::uint64_t length = input.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += std::string(input) + std::string(64, '\x3f');
  const std::filesystem::path path = fsdp::fuzz::written("model.safetensors", file);
  fsdp::fuzz::refused_or_read([&] {
    const fsdp::checkpoint::SafetensorsFile tensors(path);
    std::array<float, 8> values{};
    for (const fsdp::checkpoint::TensorInfo& tensor : tensors.tensors())
      tensors.read_range(tensor, 0, std::min<std::int64_t>(tensor.elements, values.size()), values.data());
  });
}
