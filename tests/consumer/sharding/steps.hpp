// SPDX-License-Identifier: Apache-2.0
/// @file
/// Training of two tensors that ranks shard, without a model: gathered, summed and stepped by the library.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/buffer/distributed_buffer.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>

namespace consumer {

/// A device's memory and stream for one rank.
struct Rank {
  explicit Rank(int threads) : arena(ledger, 1 << 20), stream(arena, threads) {}

  fsdp::device::Ledger ledger;
  fsdp::device::Cpu::Arena arena;
  fsdp::device::Cpu::Stream stream;
};

/// Zeroed floats of a sharded or whole group of tensors.
inline std::vector<float> zeros(std::int64_t count) {
  return std::vector<float>(static_cast<std::size_t>(count), 0.0f);
}

/// One rank's training; see weights_after.
inline std::vector<float> train(fsdp::comm::Threads<>& ranks, int steps) {
  using fsdp::Tensor;
  namespace buffer = fsdp::buffer;
  namespace device = fsdp::device;
  const std::vector<fsdp::Shape> shapes = {{300, 70}, {7}};
  const buffer::Layout layout = buffer::PerParameter::of_group(shapes, ranks.size());
  const std::int64_t local = layout.local_size(ranks.rank());
  std::vector<float> main = zeros(local), first = zeros(local), second = zeros(local), gradient = zeros(local);
  std::vector<float> whole = zeros(layout.full_size), partial = zeros(layout.full_size);
  const buffer::DistributedBuffer<float, device::Cpu, buffer::Shard> weights(layout, ranks.rank(), main.data()),
      gradients(layout, ranks.rank(), gradient.data());
  const buffer::DistributedBuffer<float, device::Cpu, buffer::Replicate> gathered(layout, ranks.rank(), whole.data());
  for (const buffer::TensorRange& range : weights.ranges())
    for (std::int64_t i = 0; i < range.count; ++i)
      weights.range(range)[i] = 1.0f + 0.001f * static_cast<float>((range.begin + i) % 1000);

  Rank rank(2);
  const device::StepRules rules{.clip = 1.0};
  const device::StepInputs inputs{.lr = 0.01};
  device::StepDecision decision;
  for (int step = 0; step < steps; ++step) {
    redistribute(ranks, weights, gathered, {"gather", 0}).wait();
    // Each rank contributes a power-of-two part of the gradient of half the sum of squares, so that sums are exact.
    const float share = 1.0f / static_cast<float>(ranks.size());
    for (std::size_t i = 0; i < whole.size(); ++i) partial[i] = share * whole[i];
    buffer::DistributedBuffer<float, device::Cpu, buffer::Partial> sums(layout, ranks.rank(), partial.data());
    fsdp::buffer::redistribute<float>(ranks, std::move(sums), gradients, fsdp::Write::overwrite, {"reduce", 1}).wait();

    std::vector<double> of_rank = {0.0, 0.0}, of_ranks(2 * static_cast<std::size_t>(ranks.size()));
    device::enqueue(rank.stream, device::SumOfSquares{.x = Tensor<const float>(whole.data(), {layout.full_size}),
                                                      .sum = Tensor<double>(&of_rank[1], {1})});
    for (int r = 0; r < ranks.size(); ++r) of_ranks[2 * static_cast<std::size_t>(r) + 1] = of_rank[1] / ranks.size();
    device::enqueue(rank.stream, device::DecideStep{.rules = rules,
                                                    .inputs = Tensor<const device::StepInputs>(&inputs, {1}),
                                                    .sums = Tensor<const double>(of_ranks.data(), {ranks.size(), 2}),
                                                    .step = Tensor<device::StepDecision>(&decision, {1})});
    device::enqueue(rank.stream, device::AdamWStep<float>{.rules = {.weight_decay = 0.1f},
                                                          .step = Tensor<const device::StepDecision>(&decision, {1}),
                                                          .main = Tensor<float>(main.data(), {local}),
                                                          .first_moment = Tensor<float>(first.data(), {local}),
                                                          .second_moment = Tensor<float>(second.data(), {local}),
                                                          .gradient = Tensor<const float>(gradient.data(), {local}),
                                                          .model = {}});
  }
  redistribute(ranks, weights, gathered, {"gather", 0}).wait();
  std::vector<float> result;
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(shapes.size()); ++t) {
    const Tensor<float> tensor = gathered.tensor(t);
    result.insert(result.end(), tensor.data(), tensor.data() + tensor.numel());
  }
  return result;
}

/// Returns the weights after some steps of AdamW towards 0 on 1, 2 or 4 ranks. They do not depend on the number of
/// ranks.
inline std::vector<float> weights_after(int steps, int ranks) {
  std::vector<float> result;
  const int status = fsdp::comm::Threads<>::run(ranks, {}, [&](fsdp::comm::Threads<>& communicator) {
    const std::vector<float> trained = train(communicator, steps);
    if (communicator.rank() == 0) result = trained;
    return 0;
  });
  return status == 0 ? result : std::vector<float>();
}

}  // namespace consumer
