// SPDX-License-Identifier: Apache-2.0
// 15: libtorch. A transformer of torch modules is sharded, and trained by torch's autograd.
//
// network.hpp does not depend on Tessera; autograd.hpp, which does not depend on the network, is the file to copy. Each
// child of the network is a unit. The embedding's weight is also the head's weight.
//
// Prints the deviation of losses and weights from libtorch alone (plain.hpp), on 1 to 3 ranks; whether kept graphs and
// recomputed graphs give bit-identical results; why kept graphs need fixed slots; and the deviation of a training in
// which torch throws on one rank, so that all ranks skip a step.
//
// Try next: use fsdp::Zero2 for `holds`, or fsdp::Zero1, which adds micro-batches in a different order; or use more
// ranks. Ranks times micro-batches must divide 12.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

#include <torch/torch.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sharded.hpp>

#include "autograd.hpp"
#include "network.hpp"
#include "plain.hpp"

namespace {

using autograd::Graph;
using Comm = fsdp::comm::Threads<>;

struct Run {
  int ranks = 1, micro_batches = 1;
  Graph graph = Graph::kept;
  bool fixed_slots = true;
  int bad_step = -1;  // step in which the last rank has invalid data; -1: none
};

/// Runs forward and backward of a micro-batch. Returns the sum of its losses.
template <class Pass>
double compute(Pass& pass, std::vector<autograd::Part>& parts, const counting::Batch& batch, Graph graph) {
  torch::Tensor x = batch.inputs;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto use = pass.forward(static_cast<int>(i));
    x = autograd::forward(parts[i], use, x, graph);
  }
  const torch::Tensor loss = counting::loss_of(x.requires_grad_(), batch.targets);
  torch::Tensor d = torch::autograd::grad({loss * share}, {x})[0];
  for (std::size_t i = parts.size(); i-- > 0;) {
    auto use = pass.backward(static_cast<int>(i));
    d = autograd::backward(parts[i], use, d);
  }
  return loss.item<double>();
}

template <class Strategy>
Trained train(const Run& run, Strategy strategy) {
  using Sharded = fsdp::Sharded<fsdp::Stack<Strategy, Comm, fsdp::Fp32>>;
  const auto initial = autograd::parts_of(counting::network());
  Trained trained;
  Comm::run(run.ranks, {}, [&](Comm& communicator) {
    torch::init_num_threads();
    const bool first = communicator.rank() == 0, last = communicator.rank() == run.ranks - 1;
    auto parts = autograd::parts_of(counting::network());
    Sharded sharded(communicator, autograd::units_of(parts), strategy,
                    {.micro_batches = run.micro_batches,
                     .optimizer = {.beta1 = beta1, .beta2 = beta2, .weight_decay = weight_decay},
                     .rules = {.clip = clip},
                     .fixed_slots = run.fixed_slots});
    for (const autograd::Part& part : initial)
      for (const auto& [name, tensor] : part.parameters)
        sharded.set(name, {tensor.template data_ptr<float>(), static_cast<std::size_t>(tensor.numel())});

    const std::int64_t count = sequences / (run.ranks * run.micro_batches);  // number of sequences in a micro-batch
    for (int step = 0; step < steps; ++step) {
      double loss = 0;
      auto pass = sharded.train();
      try {
        for (int m = 0; m < run.micro_batches; ++m) {
          counting::Batch batch(count, (communicator.rank() * run.micro_batches + m) * count, step);
          if (last && step == run.bad_step) batch.inputs[0][0] = counting::numbers;  // not in the vocabulary
          loss += compute(pass, parts, batch, run.graph);
        }
        pass.finish();
      } catch (const c10::Error&) {
        pass.forfeit();
      }
      const auto decision = sharded.step(loss * share, {.lr = lr});
      if (first && decision.forfeited < 0) trained.losses.push_back(decision.loss);
    }
    sharded.with_full({"*"}, [&](const fsdp::Parameter& parameter, fsdp::Tensor<const float> whole) {
      if (first) trained.weights.emplace(parameter.name, autograd::as_torch(whole).clone());
    });
    return 0;
  });
  return trained;
}

/// Prints a line that compares a run with libtorch alone. Returns whether both agree.
bool agree(const char* what, const Run& run, const Trained& trained, const Trained& plain) {
  double losses = trained.losses.size() == plain.losses.size() ? 0 : INFINITY, difference = 0, size = 0;
  for (std::size_t i = 0; i < std::min(trained.losses.size(), plain.losses.size()); ++i)
    losses = std::max(losses, std::abs(trained.losses[i] / plain.losses[i] - 1));
  for (const auto& [name, tensor] : plain.weights) {
    difference += (trained.weights.at(name) - tensor).pow(2).sum().item<double>();
    size += tensor.pow(2).sum().item<double>();
  }
  const double weights = std::sqrt(difference / size);
  std::printf("ranks %d  micro-batches %d  losses %.1e  weights %.1e  %s\n", run.ranks, run.micro_batches, losses,
              weights, what);
  return losses < 2e-6 && weights < 5e-6;
}

bool same_bits(const Trained& a, const Trained& b) {
  const auto same = [](const auto& x, const auto& y) { return x.first == y.first && torch::equal(x.second, y.second); };
  return a.losses == b.losses &&
         std::equal(a.weights.begin(), a.weights.end(), b.weights.begin(), b.weights.end(), same);
}

}  // namespace

int main() try {
  at::set_num_threads(1);  // threads of each rank
  // With a smaller depth, the weights of so few units never change slots.
  const fsdp::FullyShard<> reshards{.prefetch_depth = 4};
  const fsdp::FullyShard<fsdp::ReshardAfterForward::no> holds;
  const Trained plain = train_plain(counting::network());
  std::printf("libtorch alone: loss %.4f in the first step, %.4f in the last one\n", plain.losses.front(),
              plain.losses.back());
  bool good = true;
  for (const int micro_batches : {1, 2})
    for (const int ranks : {1, 2, 3}) {
      const Run run{.ranks = ranks, .micro_batches = micro_batches};
      Run held = run, recomputed = run;
      held.fixed_slots = recomputed.fixed_slots = false;
      recomputed.graph = Graph::recomputed;
      const Trained kept = train(run, reshards);
      const bool same = same_bits(kept, train(recomputed, reshards)) && same_bits(kept, train(held, holds));
      good = agree(same ? "same bits recomputed, and not resharded" : "OTHER BITS", run, kept, plain) && same && good;
    }
  try {
    train({.ranks = 2, .fixed_slots = false}, reshards);
    good = false;
  } catch (const std::logic_error& error) {
    std::printf("without fixed slots: %s\n", error.what());
  }
  const Run bad{.ranks = 3, .bad_step = 5};
  good = agree("a step skipped", bad, train(bad, reshards), train_plain(counting::network(), bad.bad_step)) && good;
  return good ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
