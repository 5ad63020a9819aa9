// SPDX-License-Identifier: Apache-2.0
#include <support/batch_memory.hpp>

#include <iterator>

namespace fsdp::test {

namespace {

Tensor<const std::int32_t> view(const std::vector<std::int32_t>& list) { return {list.data(), {std::ssize(list)}}; }

}  // namespace

BatchMemory::BatchMemory() = default;
BatchMemory::~BatchMemory() = default;

TokenBatch BatchMemory::add(const std::vector<Window>& windows) {
  std::vector<std::int32_t>&tokens = tokens_.emplace_back(), &targets = targets_.emplace_back();
  std::vector<std::int64_t>& lengths = documents_.emplace_back();
  for (const Window& window : windows) {
    for (const std::int64_t length : window.documents) {
      if (lengths.empty()) lengths.push_back(0);
      lengths.push_back(lengths.back() + length);
    }
    tokens.insert(tokens.end(), window.tokens.begin(), window.tokens.end());
    targets.insert(targets.end(), window.targets.begin(), window.targets.end());
  }
  return {.tokens = view(tokens), .targets = view(targets), .sequences = std::ssize(windows), .documents = lengths};
}

DrawnStep::DrawnStep() = default;
DrawnStep::~DrawnStep() = default;

void DrawnStep::open_gate() { gate.reset(); }

}  // namespace fsdp::test
