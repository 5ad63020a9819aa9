// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares runs with the float64 values of a golden folder. tests/golden/make_llama.py writes these folders, and
/// make_family.py those of other families.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/checkpoint/safetensors.hpp>
#include <tessera/fsdp/models/llama_config.hpp>

#include <support/stack_runner.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {

/// A golden folder: its 6 windows of text, and PyTorch's results for them.
struct Golden {
  explicit Golden(const std::string& name)
      : folder(golden(name)), config(LlamaConfig::read(folder)), expected(folder / "expected.safetensors") {
    const std::string text = content_of(folder / "text.bin");
    length = expected.at("logits").shape.at(1);
    for (std::size_t begin = 0; begin + static_cast<std::size_t>(length) < text.size();
         begin += static_cast<std::size_t>(length)) {
      Window window;
      for (std::size_t i = begin; i < begin + static_cast<std::size_t>(length); ++i) {
        window.tokens.push_back(static_cast<unsigned char>(text[i]));
        window.targets.push_back(static_cast<unsigned char>(text[i + 1]));
      }
      windows.push_back(window);
    }
  }

  std::vector<double> read(std::string_view name) const {
    const auto& tensor = expected.at(name);
    std::vector<double> values(static_cast<std::size_t>(tensor.elements));
    expected.read_range(tensor, 0, tensor.elements, values.data());
    return values;
  }

  /// The 20 steps that produced the folder, on `ranks` ranks in `micro_batches` micro-batches.
  RunOptions options(int ranks, int micro_batches, tiling::RunTimeTiling tiling, double clip) const {
    return {.config = config,
            .sequence_length = length,
            .most_sequences = most_dealt(windows.size(), ranks, micro_batches),
            .ranks = ranks,
            .micro_batches = micro_batches,
            .steps = 20,
            .tiling = tiling,
            .clip = clip,
            .batch = deal(windows),
            .model = folder};
  }

  std::filesystem::path folder;
  LlamaConfig config;
  checkpoint::SafetensorsFile expected;
  std::int64_t length = 0;
  std::vector<Window> windows;
};

inline void expect_close(const Values& found, const Golden& golden, const std::string& prefix, double bound) {
  const auto is_gradient = [](const checkpoint::TensorInfo& tensor) { return tensor.name.starts_with("grad."); };
  EXPECT_EQ(std::ssize(found), std::ranges::count_if(golden.expected.tensors(), is_gradient))
      << "no tensor is left out";
  for (const auto& [name, values] : found)
    EXPECT_LE(relative(values, golden.read(prefix + name)), bound) << prefix << name;
}

/// Relative bounds: `bound` for the first loss and the logits, `later` for the losses and norms of the 20 steps, and
/// 1e-4 for gradients and for the weights after the steps.
inline void expect_golden(const RunResults& results, const Golden& golden, double bound = 1e-5, double later = 1e-5) {
  EXPECT_LE(largest_relative({results.losses.front()}, golden.read("loss")), bound);
  EXPECT_LE(largest_relative(results.losses, golden.read("adamw.losses")), later);
  EXPECT_LE(largest_relative(results.norms, golden.read("adamw.grad_norms")), later);
  expect_close(results.gradients, golden, "grad.", 1e-4);
  expect_close(results.weights, golden, "adamw.", 1e-4);
  for (const auto& windows : {results.logits, results.continued_logits}) {
    std::vector<float> logits;
    for (const auto& window : windows) logits.insert(logits.end(), window.begin(), window.end());
    if (!logits.empty()) {
      EXPECT_LE(relative(logits, golden.read("logits")), bound);
    }
  }
}

struct GoldenFolder {
  const char* name;
  double clip;  ///< --clip of the run that produced the folder
};
inline constexpr GoldenFolder golden_folders[] = {{"llama-gqa", 0.0}, {"llama-odd", 1.0}};
/// Folders whose values come from `transformers`.
inline constexpr GoldenFolder family_folders[] = {
    {"llama-llama3", 0.0}, {"mistral-window", 0.0}, {"qwen2-yarn", 0.0}, {"qwen3-window", 0.0}};

struct NamedTiling {
  const char* name;
  tiling::RunTimeTiling policy;
  int number;
};
inline std::vector<NamedTiling> golden_tilings() {
  return {{"tiles:2", tiling::RunTimeTiling::tiles(2), 1},
          {"tokens:5", tiling::RunTimeTiling::tokens(5), 2},
          {"off", {}, 3}};
}

}  // namespace fsdp::test
