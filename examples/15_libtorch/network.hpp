// SPDX-License-Identifier: Apache-2.0
// A small transformer of libtorch modules, its data and its loss. It includes nothing from Tessera.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>

#include <torch/torch.h>

namespace counting {

constexpr std::int64_t numbers = 29;  // size of the vocabulary
constexpr std::int64_t length = 12;   // length of the inputs
constexpr std::int64_t width = 24, heads = 3, blocks = 3;

/// Embeds numbers and positions: [n, length] -> [n, length, width].
struct Embedding : torch::nn::Module {
  torch::Tensor numbers_of, places;

  Embedding() {
    numbers_of = register_parameter("numbers", torch::randn({numbers, width}) / std::sqrt(width));
    places = register_parameter("places", torch::randn({length, width}) / std::sqrt(width));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::embedding(numbers_of, x) + places; }
};

/// Causal attention and an MLP, each with a preceding norm and a residual connection: [n, length, width] -> the same
/// shape.
struct Block : torch::nn::Module {
  torch::nn::LayerNorm norm1 = nullptr, norm2 = nullptr;
  torch::nn::Linear queries_keys_values = nullptr, out = nullptr, up = nullptr, down = nullptr;

  Block() {
    using torch::nn::LinearOptions;
    norm1 = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    // No bias: the gradient of the keys' bias is only rounding error, from which AdamW would make steps.
    queries_keys_values = register_module("qkv", torch::nn::Linear(LinearOptions(width, 3 * width).bias(false)));
    out = register_module("out", torch::nn::Linear(width, width));
    norm2 = register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", torch::nn::Linear(width, 4 * width));
    down = register_module("down", torch::nn::Linear(4 * width, width));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto attended = x + out(attention(queries_keys_values(norm1(x))));
    return attended + down(torch::gelu(up(norm2(attended))));
  }

 private:
  static torch::Tensor attention(const torch::Tensor& qkv) {
    const auto by_head = qkv.view({-1, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    const auto scores = torch::matmul(by_head[0], by_head[1].transpose(-2, -1)) / std::sqrt(width / heads);
    const auto later = torch::ones({length, length}, torch::kBool).triu(1);
    const auto shares = torch::softmax(scores.masked_fill(later, -INFINITY), -1);
    return torch::matmul(shares, by_head[2]).transpose(1, 2).reshape({-1, length, width});
  }
};

/// A norm, and a score for each number by the embedding's vectors: [n, length, width] -> [n, length, numbers].
struct Head : torch::nn::Module {
  torch::nn::LayerNorm norm = nullptr;
  torch::Tensor numbers_of;

  explicit Head(const Embedding& embedding) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    numbers_of = register_parameter("numbers", embedding.numbers_of);  // the same tensor: a tied weight
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::linear(norm(x), numbers_of); }
};

/// Returns the network, with the same initial weights in each call, except in concurrent calls, which share torch's
/// random generator.
inline torch::nn::Sequential network() {
  torch::manual_seed(1);
  torch::nn::Sequential parts;
  const auto embedding = std::make_shared<Embedding>();
  parts->push_back("embedding", embedding);
  for (int i = 0; i < blocks; ++i) parts->push_back("block" + std::to_string(i), std::make_shared<Block>());
  parts->push_back("head", std::make_shared<Head>(*embedding));
  return parts;
}

/// Sequences that count in steps of 1 to 5, modulo `numbers`. Sequence `first + i` of a step is the same in every call.
struct Batch {
  torch::Tensor inputs, targets;  // [count, length]

  Batch(std::int64_t count, std::int64_t first, int step) {
    const auto sequence = torch::arange(first, first + count) + step * 101;  // [count]
    const auto begin = sequence * 7 % numbers, by = sequence * 13 % 5 + 1;
    const auto places = torch::arange(length + 1);
    const auto all = (begin.unsqueeze(1) + by.unsqueeze(1) * places) % numbers;  // [count, length + 1]
    inputs = all.slice(1, 0, length).contiguous();
    targets = all.slice(1, 1).contiguous();
  }
};

/// Returns the sum of the losses over all positions.
inline torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& targets) {
  return torch::cross_entropy_loss(scores.flatten(0, 1), targets.flatten(), {}, at::Reduction::Sum);
}

}  // namespace counting
