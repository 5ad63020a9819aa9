// SPDX-License-Identifier: Apache-2.0
// The training task, and training by libtorch alone: one graph, torch's clipping and AdamW, the whole batch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "autograd.hpp"
#include "network.hpp"

constexpr std::int64_t sequences = 12;  // number of sequences in a step
constexpr double share = 1.0 / (sequences * counting::length);
constexpr double lr = 0.01, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.01, clip = 1;
constexpr int steps = 20;

struct Trained {
  std::vector<double> losses;  // for each step: the mean over all positions
  std::map<std::string, torch::Tensor> weights;
};

/// `left_out`: the step to skip; -1: none.
inline Trained train_plain(torch::nn::Sequential network, int left_out = -1) {
  Trained trained;
  for (const autograd::Part& part : autograd::parts_of(network))
    for (const auto& [name, tensor] : part.parameters) trained.weights.emplace(name, tensor);  // a tied weight once
  std::vector<torch::Tensor> all, matrices, vectors;
  for (const auto& [name, tensor] : trained.weights) {
    all.push_back(tensor);
    (tensor.dim() >= 2 ? matrices : vectors).push_back(tensor);
  }
  using Options = torch::optim::AdamWOptions;
  const Options options = Options(lr).betas({beta1, beta2}).weight_decay(0);
  torch::optim::AdamW optimizer(
      {{matrices, std::make_unique<Options>(Options(options).weight_decay(weight_decay))}, vectors}, options);
  for (int step = 0; step < steps; ++step) {
    if (step == left_out) continue;
    const counting::Batch batch(sequences, 0, step);
    const auto loss = counting::loss_of(network->forward(batch.inputs), batch.targets);
    optimizer.zero_grad();
    (loss * share).backward();
    torch::nn::utils::clip_grad_norm_(all, clip);
    optimizer.step();
    trained.losses.push_back(loss.item<double>() * share);
  }
  return trained;
}
