// SPDX-License-Identifier: Apache-2.0
/// @file
/// AdamW over one long tensor: 30 bytes per parameter with a bf16 model weight, 28 without. Muon's step on the matrices
/// of a Llama layer compared with AdamW's step on the same matrices, and the load balance of buffer::Owned for Muon.
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>

#include "../src/program/calibrate/computations.hpp"
#include "bounds.hpp"
#include "lines.hpp"
#include "options.hpp"

namespace fsdp::bench {
namespace {

using calibrate::fill_uniform;
using calibrate::Tensors;
using device::Cpu;

/// One optimizer's step on all tensors, with model weights of type Compute; if that is float, they are the main
/// weights. On Meta it only counts memory.
template <class Optimizer, class Compute, class Device = Cpu>
class Steps {
 public:
  Steps(const std::vector<Parameter>& parameters, int threads)
      : arena_(Device::Arena::planned(ledger_, scratch_of(parameters, threads))), stream_(arena_, threads) {
    for (const Parameter& parameter : parameters) {
      Piece& piece = pieces_.emplace_back(Piece{.parameter = parameter,
                                                .main = memory_.template make<float>(parameter.shape),
                                                .gradient = memory_.template make<float>(parameter.shape)});
      for (std::size_t state = 0; state < optimizer_.states(parameter).size(); ++state)
        piece.states.emplace_back(memory_.template make<float>(parameter.shape));
      if constexpr (!std::is_same_v<Compute, float>) piece.model = memory_.template make<Compute>(parameter.shape);
      elements_ += parameter.shape.numel();
      if constexpr (!Device::counts_only) {
        fill_uniform(piece.main, 0.02f);
        fill_uniform(piece.gradient, 1e-3f);
      }
    }
  }

  void run() {
    const device::StepDecision decision{.taken = 1, .lr = 1e-4};
    for (Piece& piece : pieces_)
      optimizer_.update(stream_,
                        optim::Update<Compute>{.parameter = piece.parameter,
                                               .main = piece.main,
                                               .states = piece.states,
                                               .gradient = piece.gradient,
                                               .model = piece.model},
                        {&decision, {1}});
  }
  std::int64_t elements() const { return elements_; }
  std::int64_t bytes() const { return memory_.bytes(); }
  std::int64_t scratch_bytes() const { return arena_.peak(); }

 private:
  struct Piece {
    Parameter parameter;
    Tensor<float> main, gradient;
    std::vector<optim::State> states = {};
    Tensor<Compute> model = {};
  };

  static std::int64_t scratch_of(const std::vector<Parameter>& parameters, int threads) {
    if constexpr (Device::counts_only)
      return 0;
    else {
      Steps<Optimizer, Compute, device::MetaFor<Cpu>> dry(parameters, threads);
      dry.run();
      return dry.scratch_bytes();
    }
  }

  Optimizer optimizer_;
  device::Ledger ledger_;
  typename Device::Arena arena_;
  typename Device::Stream stream_;
  Tensors<Device> memory_;
  std::vector<Piece> pieces_;
  std::int64_t elements_ = 0;
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
      .add("precision", cli::to_text(precision), "threads", threads, "parameters", options.parameters)
      .add("bytes_per_parameter", bytes_per_parameter, "ms", rounds.median_seconds(step_case) * 1e3)
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

/// The largest share of a rank divided by the mean share.
struct Balance {
  double work = 1, elements = 1;
};

Balance balance_of(const std::vector<Parameter>& parameters, std::int64_t layers, int ranks) {
  buffer::TensorGroup layer;
  for (const Parameter& parameter : parameters)
    layer.tensors.push_back({.shape = parameter.shape, .work = optim::Muon{}.work(parameter)});
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
  for (const Parameter& parameter : layer) work += optim::Muon{}.work(parameter);
  const int ranks = options.stack.comm.ranks > 1 ? static_cast<int>(options.stack.comm.ranks) : 8;
  const Balance balance = balance_of(layer, options.layers, ranks);
  return Line("muon")
      .add("precision", cli::to_text(precision), "threads", threads, "parameters", muon.elements())
      .add("ms", rounds.median_seconds(muon_case) * 1e3, "adamw_ms", rounds.median_seconds(adamw_case) * 1e3)
      .add("ratio", rounds.median_ratio(muon_case, adamw_case))
      .add("gflops", static_cast<double>(work) / rounds.median_seconds(muon_case) * 1e-9)  // FLOPs of Newton-Schulz
      .add("ranks", ranks, "work_balance", balance.work, "bytes_balance", balance.elements);
}

template <class Compute>
void measure_both(const BenchOptions& options, cli::PrecisionChoice precision, int threads) {
  measure_adamw<Compute>(options, precision, threads).print();
  measure_muon<Compute>(options, precision, threads).print();
}

}  // namespace

void measure_optim(const BenchOptions& options, const train::FlagSet& flags) {
  const int threads = options.threads();
  const bool asked = flags.is_given("precision");
  for (const cli::PrecisionChoice precision : {cli::PrecisionChoice::bf16, cli::PrecisionChoice::fp32})
    if (!asked || precision == options.stack.precision) {
      const auto measured = precision == cli::PrecisionChoice::bf16 ? measure_both<bf16> : measure_both<float>;
      measured(options, precision, threads);
    }
}

}  // namespace fsdp::bench
