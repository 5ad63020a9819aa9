// SPDX-License-Identifier: Apache-2.0
// A manifest.json with a valid checksum.
#include "src/fsdp/checkpoint/file_sums.hpp"
#include "src/fsdp/checkpoint/manifest.hpp"
#include "target.hpp"

FUZZ_TARGET(manifest) {
  const std::string text = std::string(input) + ",\n  \"crc32c\": \"";
  std::string sum;
  const std::uint32_t crc = fsdp::checkpoint::crc32c(std::as_bytes(std::span(text)));
  for (int shift = 28; shift >= 0; shift -= 4) sum += "0123456789abcdef"[(crc >> shift) & 15];
  const std::filesystem::path path = fsdp::fuzz::written("manifest/manifest.json", text + sum + "\"\n}\n");
  fsdp::fuzz::refused_or_read([&] { fsdp::checkpoint::read_manifest(path.parent_path()); });
}
