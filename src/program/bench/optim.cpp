// SPDX-License-Identifier: Apache-2.0
/// @file
/// AdamW over one long tensor: 30 bytes per parameter with a bf16 model weight, 28 without. Muon's step on the matrices
/// of a Llama layer against AdamW's step on the same, and how evenly buffer::Owned distributes it.
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/fsdp/buffer/owned.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/optim/adamw.hpp>
#include <tessera/fsdp/training/muon.hpp>

#include "alone.hpp"
#include "floors.hpp"
#include "lines.hpp"
#include "rounds.hpp"

namespace fsdp::bench {
namespace {

using device::Cpu;
using device::MemoryKind;

/// Returns the arena bytes that an optimizer's update of these tensors takes.
template <class Optimizer, class Compute>
std::int64_t scratch_of(const std::vector<Parameter>& parameters, int threads) {
  using Meta = device::MetaFor<Cpu>;
  auto arena = Meta::Arena::unbounded();
  Meta::Stream stream(arena, threads);
  const Optimizer optimizer;
  for (const Parameter& parameter : parameters) {
    const Tensor<float> any(reinterpret_cast<float*>(Meta::unbacked(0)), parameter.shape);
    const std::vector<Tensor<float>> states(optimizer.states(parameter).size(), any);
    Tensor<Compute> model;
    if constexpr (!std::is_same_v<Compute, float>)
      model = {reinterpret_cast<Compute*>(Meta::unbacked(0)), parameter.shape};
    const device::StepDecision decision;
    optimizer.update(
        stream,
        optim::Update<Compute>{.parameter = parameter, .main = any, .states = states, .gradient = any, .model = model},
        Tensor<const device::StepDecision>(&decision, {1}));
  }
  return arena.peak();
}

/// One optimizer's step on all tensors, with model weights in Compute; with float they are the main weights.
template <class Optimizer, class Compute>
class Steps {
 public:
  Steps(const std::vector<Parameter>& parameters, int threads)
      : parameters_(parameters),
        arena_(ledger_, scratch_of<Optimizer, Compute>(parameters_, threads)),
        stream_(arena_, threads) {
    for (const Parameter& parameter : parameters) elements_ += parameter.shape.numel();
    const std::size_t states = optimizer_.states(parameters_.front()).size();
    for (std::size_t block = 0; block < 2 + states; ++block)
      blocks_.emplace_back(ledger_, MemoryKind::weights, elements_ * std::int64_t{sizeof(float)});
    const bool rounds = !std::is_same_v<Compute, float>;
    model_ = CpuBlock(ledger_, MemoryKind::weights, rounds ? elements_ * std::int64_t{sizeof(Compute)} : 0);
    fill_uniform({floats(0), {elements_}}, 0.02f);
    fill_uniform({floats(1), {elements_}}, 1e-3f);
  }

  void run() {
    const device::StepDecision decision{.taken = 1, .lr = 1e-4};
    std::int64_t at = 0;
    for (const Parameter& parameter : parameters_) {
      std::vector<Tensor<float>> states;
      for (std::size_t block = 2; block < blocks_.size(); ++block)
        states.emplace_back(floats(block) + at, parameter.shape);
      Tensor<Compute> model;
      if constexpr (!std::is_same_v<Compute, float>)
        model = {reinterpret_cast<Compute*>(model_.data()) + at, parameter.shape};
      optimizer_.update(stream_,
                        optim::Update<Compute>{.parameter = parameter,
                                               .main = {floats(0) + at, parameter.shape},
                                               .states = states,
                                               .gradient = {floats(1) + at, parameter.shape},
                                               .model = model},
                        {&decision, {1}});
      at += parameter.shape.numel();
    }
  }
  std::int64_t elements() const { return elements_; }
  std::int64_t bytes() const { return ledger_.bytes(); }

 private:
  float* floats(std::size_t block) { return reinterpret_cast<float*>(blocks_[block].data()); }

  Optimizer optimizer_;
  std::vector<Parameter> parameters_;
  device::Ledger ledger_;
  Cpu::Arena arena_;
  Cpu::Stream stream_;
  std::int64_t elements_ = 0;
  std::vector<CpuBlock> blocks_;  // main weights, gradients, states
  CpuBlock model_;
};

template <class Compute>
Line measure_adamw(const BenchOptions& options, cli::PrecisionChoice precision, int threads) {
  Steps<optim::AdamW, Compute> adamw({{.name = "vector", .shape = {options.parameters}, .decays = true}}, threads);
  Triad triad(adamw.bytes(), threads);  // arrays of the same size
  Rounds rounds;
  const std::size_t step_case = rounds.add([&] { adamw.run(); });
  const std::size_t triad_case = rounds.add([&] { triad.run(); });
  rounds.run(options.repeats);

  const std::int64_t bytes_per_parameter = std::is_same_v<Compute, float> ? 28 : 30;
  const auto bytes = static_cast<double>(bytes_per_parameter * options.parameters);
  const auto triad_bytes = static_cast<double>(triad.bytes());
  return Line("optim")
      .add("precision", cli::to_text(precision))
      .add("threads", threads)
      .add("parameters", options.parameters)
      .add("bytes_per_parameter", bytes_per_parameter)
      .add("ms", rounds.median_seconds(step_case) * 1e3)
      .add("gb_per_second", bytes / rounds.median_seconds(step_case) * 1e-9)
      .add("triad_gb_per_second", triad_bytes / rounds.median_seconds(triad_case) * 1e-9)
      .add("ratio", rounds.median_of([&](std::size_t round) {
        return bytes / triad_bytes * rounds.seconds(triad_case, round) / rounds.seconds(step_case, round);
      }));
}

/// The matrices of one layer: q, k, v, out, gate, up, down.
std::vector<Parameter> layer_of(const BenchOptions& options) {
  const std::int64_t hidden = options.hidden, kv = hidden / options.heads * options.kv_heads;
  const std::int64_t wide = options.intermediate > 0 ? options.intermediate : 2816;
  std::vector<Parameter> matrices;
  for (const Shape& shape : {Shape{hidden, hidden},
                             {kv, hidden},
                             {kv, hidden},
                             {hidden, hidden},
                             {wide, hidden},
                             {wide, hidden},
                             {hidden, wide}})
    matrices.push_back({.name = "matrix", .shape = shape, .role = Role::matrix, .decays = true});
  return matrices;
}

/// The largest share of any rank over the mean share.
struct Balance {
  double work = 1, elements = 1;
};

Balance balance_of(const std::vector<Parameter>& parameters, std::int64_t layers, int ranks) {
  buffer::TensorGroup layer;
  for (const Parameter& parameter : parameters)
    layer.tensors.push_back({.shape = parameter.shape, .work = optim::Muon::work(parameter)});
  const std::vector<buffer::TensorGroup> groups(static_cast<std::size_t>(layers), layer);
  std::vector<std::int64_t> work(static_cast<std::size_t>(ranks)), elements(work.size());
  for (const buffer::Layout& layout : buffer::Owned{}.build(groups, ranks)) {
    std::int64_t begin = 0;
    for (std::size_t rank = 0; rank < work.size(); ++rank) {
      const std::int64_t end = begin + layout.local_sizes[rank];
      for (std::size_t i = 0; i < layout.shapes.size(); ++i)
        if (layout.offsets[i] >= begin && layout.offsets[i] < end) work[rank] += layer.tensors[i].work;
      elements[rank] += layout.local_sizes[rank];
      begin = end;
    }
  }
  const auto ratio = [&](const std::vector<std::int64_t>& of) {
    double sum = 0;
    for (const std::int64_t each : of) sum += static_cast<double>(each);
    return static_cast<double>(*std::max_element(of.begin(), of.end())) * ranks / sum;
  };
  return {.work = ratio(work), .elements = ratio(elements)};
}

template <class Compute>
Line measure_muon(const BenchOptions& options, cli::PrecisionChoice precision, int threads) {
  const std::vector<Parameter> layer = layer_of(options);
  Steps<optim::Muon, Compute> muon(layer, threads);
  Steps<optim::AdamW, Compute> adamw(layer, threads);
  Rounds rounds;
  const std::size_t muon_case = rounds.add([&] { muon.run(); });
  const std::size_t adamw_case = rounds.add([&] { adamw.run(); });
  rounds.run(options.repeats);

  std::int64_t work = 0;
  for (const Parameter& parameter : layer) work += optim::Muon::work(parameter);
  const int ranks = options.stack.comm.ranks > 1 ? static_cast<int>(options.stack.comm.ranks) : 8;
  const Balance balance = balance_of(layer, options.layers, ranks);
  return Line("muon")
      .add("precision", cli::to_text(precision))
      .add("threads", threads)
      .add("parameters", muon.elements())
      .add("ms", rounds.median_seconds(muon_case) * 1e3)
      .add("adamw_ms", rounds.median_seconds(adamw_case) * 1e3)
      .add("ratio", rounds.median_ratio(muon_case, adamw_case))
      .add("gflops", static_cast<double>(work) / rounds.median_seconds(muon_case) * 1e-9)  // of Newton-Schulz
      .add("ranks", ranks)
      .add("work_balance", balance.work)
      .add("bytes_balance", balance.elements);
}

template <class Compute>
void measure_both(const BenchOptions& options, cli::PrecisionChoice precision, int threads) {
  measure_adamw<Compute>(options, precision, threads).print();
  measure_muon<Compute>(options, precision, threads).print();
}

}  // namespace

int measure_optim(const BenchOptions& options, const train::FlagSet& flags) {
  const int threads = comm::planned_threads(options.launch.threads, 1);
  const bool asked = flags.is_given("precision");
  for (const cli::PrecisionChoice precision : {cli::PrecisionChoice::bf16, cli::PrecisionChoice::fp32})
    if (!asked || precision == options.stack.precision) {
      const auto measured = precision == cli::PrecisionChoice::bf16 ? measure_both<bf16> : measure_both<float>;
      measured(options, precision, threads);
    }
  return 0;
}

}  // namespace fsdp::bench
