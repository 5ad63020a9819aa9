// SPDX-License-Identifier: Apache-2.0
/// @file
/// How attention splits a sequence into blocks and distributes them over threads.
#include <numeric>

#include "attention.hpp"

namespace fsdp::device::cpu {

AttentionBlocks attention_blocks(const AttentionShape& shape, bool backward) {
  const std::int64_t length = shape.sequence_length;
  const std::int64_t queries = length <= 512 ? 64 : length <= 2048 ? 128 : 256, keys = backward ? 256 : 512;
  return {.queries = std::min(queries, length), .keys = std::min(keys, length)};
}

std::vector<AttentionBlocks> tile_extents(std::int64_t sequence_length, const AttentionBlocks& blocks) {
  std::vector<AttentionBlocks> extents;
  const auto add = [&](const AttentionBlocks& extent) {
    if (std::find(extents.begin(), extents.end(), extent) == extents.end()) extents.push_back(extent);
  };
  for (std::int64_t begin = 0; begin < sequence_length; begin += blocks.queries) {
    const std::int64_t end = std::min(begin + blocks.queries, sequence_length);
    if (end >= blocks.keys) add({.queries = end - begin, .keys = blocks.keys});
    if (end % blocks.keys != 0) add({.queries = end - begin, .keys = end % blocks.keys});
  }
  return extents;
}

QueryBlock query_block(const AttentionShape& shape, const AttentionBlocks& blocks, std::int64_t sequence,
                       std::int64_t index) {
  const std::int64_t start = sequence * shape.sequence_length, begin = index * blocks.queries;
  const std::int64_t first = std::max(shape.document(start + begin).begin - start, begin + 1 - window_of(shape));
  return {.begin = begin,
          .end = std::min(begin + blocks.queries, shape.sequence_length),
          .first_key = first - first % blocks.keys};
}

QuerySplit split_queries(std::int64_t parts, std::int64_t group, const std::vector<std::int64_t>& keys) {
  const std::int64_t query_blocks = std::ssize(keys);
  QuerySplit split{.part = std::vector<std::int64_t>(static_cast<std::size_t>(group * query_blocks))};
  std::vector<std::int64_t> load(static_cast<std::size_t>(parts), 0);
  for (std::int64_t block = query_blocks - 1; block >= 0; --block)
    for (std::int64_t member = 0; member < group; ++member) {
      const auto least = std::min_element(load.begin(), load.end());
      split.part[static_cast<std::size_t>(member * query_blocks + block)] = least - load.begin();
      *least += keys[static_cast<std::size_t>(block)];
    }
  split.longest = *std::max_element(load.begin(), load.end());
  split.total = std::accumulate(load.begin(), load.end(), std::int64_t{0});
  return split;
}

}  // namespace fsdp::device::cpu
