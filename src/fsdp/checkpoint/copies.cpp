// SPDX-License-Identifier: Apache-2.0
#include "copies.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::checkpoint {
namespace {

/// Returns a number rounded to the element type `dtype`.
float rounded(float value, const std::string& dtype) {
  if (dtype == "BF16") return static_cast<float>(bf16(value));
  if (dtype == "F16") return static_cast<float>(f16(value));
  return value;
}

/// Bitwise comparison, so that NaN equals itself; in addition, 0 equals -0.
bool equal(float a, float b) { return a == b || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

}  // namespace

void require_copy(const WeightFiles& files, const std::string& copy, const std::string& original) {
  const TensorInfo& a = *files.find(copy);
  const TensorInfo& b = *files.find(original);
  const std::string file = files.path().string();
  const std::string then =
      message("; the config ties them, so that one would be dropped. Set \"tie_word_embeddings\" to ",
              "false in config.json to use both, or remove ", copy, " from the file");
  require<InputError>(a.shape == b.shape, file, ": ", copy, " has shape ", shape_text(a.shape), " and ", original,
                      " has ", shape_text(b.shape), then);
  std::vector<float> first, second;
  for (std::int64_t begin = 0; begin < a.elements; begin += piece_elements) {
    const std::int64_t count = std::min(piece_elements, a.elements - begin);
    first.resize(static_cast<std::size_t>(count));
    second.resize(static_cast<std::size_t>(count));
    files.read_range(copy, begin, count, first.data());
    files.read_range(original, begin, count, second.data());
    for (std::size_t i = 0; i < first.size(); ++i)
      require<InputError>(equal(rounded(first[i], b.dtype), rounded(second[i], a.dtype)), file, ": ", copy, "[",
                          begin + static_cast<std::int64_t>(i), "] is ", first[i], " and ", original, "[",
                          begin + static_cast<std::int64_t>(i), "] is ", second[i], then);
  }
}

}  // namespace fsdp::checkpoint
