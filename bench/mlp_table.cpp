// SPDX-License-Identifier: Apache-2.0
/// @file
/// The setting of the published tiled MLP: one MLP sharded over ranks, with its all-gather, forward, backward and
/// reduction, and without optimizer moments. Source of the figures: ms-swift, pull request 7090 (two H800, FSDP2, bf16,
/// 4 tiles).
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/training/launch.hpp>

#include "lines.hpp"
#include "mlp_layer.hpp"
#include "options.hpp"

namespace fsdp::bench {
namespace {

using device::Cpu;
using device::MemoryKind;
using device::Meta;
using Comm = comm::Threads<Cpu>;

constexpr std::int64_t mib = std::int64_t{1} << 20;

/// The published peak bytes for hidden 4096 and intermediate 12288, both exactly piecewise linear in the length. Empty
/// for other sizes.
struct Published {
  std::optional<std::int64_t> untiled, tiled;

  explicit Published(const MlpSizes& sizes) {
    if (sizes.hidden != 4096 || sizes.intermediate != 12288) return;
    const std::int64_t u = sizes.tokens * 4096 * 2;  // a [S, H] tensor in bf16
    untiled = std::max(21 * u + 736 * mib, 18 * u + 928 * mib);
    tiled = std::max(u * 35 / 4 + 1216 * mib, u * 33 / 4 + 1312 * mib);
  }
};

/// The shards of a rank, which it stores in addition to operands and activations.
template <class Device, class Compute>
struct Shards {
  Shards(device::Ledger& ledger, const MlpSizes& sizes, int rank, int ranks)
      : chunk(ceil_divide(3 * sizes.hidden * sizes.intermediate, ranks)),
        main(ledger, MemoryKind::weights, chunk * std::int64_t{sizeof(float)}),
        model(ledger, MemoryKind::weights, std::is_same_v<Compute, float> ? 0 : chunk * std::int64_t{sizeof(Compute)}),
        gradients(ledger, MemoryKind::gradients, chunk * std::int64_t{sizeof(float)}) {
    for (int peer = 0; peer < ranks; ++peer)
      counts.push_back(std::clamp<std::int64_t>(3 * sizes.hidden * sizes.intermediate - peer * chunk, 0, chunk));
    if constexpr (!Device::counts_only) fill_uniform(weights(), 0.05f);
    own = counts[static_cast<std::size_t>(rank)];
  }
  /// Returns the model weights, which are the main weights if their types agree.
  Tensor<Compute> weights() const {
    return {reinterpret_cast<Compute*>(std::is_same_v<Compute, float> ? main.data() : model.data()), {chunk}};
  }
  std::int64_t bytes() const { return main.bytes() + model.bytes() + gradients.bytes(); }

  std::int64_t chunk, own = 0;
  device::Block<Device> main, model, gradients;
  std::vector<std::int64_t> counts;
};

/// A case: one length and tiling.
struct Entry {
  MlpSizes sizes;
  tiling::RunTimeTiling tiling;
  std::shared_ptr<const nn::TilePlans> plans;
  tiling::TilePlan plan;
  Line line;  ///< the line before the times are added
  std::int64_t activation_bytes, matmul_flops;
  /// The part of our bytes that the published figures also count: one sharded copy of the weights, unsharded weights,
  /// unsharded gradients, x, out, dout and activations.
  std::int64_t counted_as_published;
  bool timed = false;
};

template <class PrecisionT>
Entry planned(const MlpSizes& sizes, const tiling::RunTimeTiling& tiling, int ranks) {
  using Compute = typename PrecisionT::Compute;
  device::Ledger ledger;
  const MlpOperands<Meta, Compute> operands(ledger, sizes);
  const Shards<Meta, Compute> shards(ledger, sizes, 0, ranks);
  const auto plans = std::make_shared<nn::TilePlans>(tiling);
  MlpLayer<nn::Local<Meta, PrecisionT>> layer(operands, plans, 0);
  layer.forward();
  layer.backward();
  Entry entry{.sizes = sizes,
              .tiling = tiling,
              .plans = plans,
              .plan = layer.plan(),
              .line = Line("mlp_table"),
              .activation_bytes = layer.arena_peak(),
              .matmul_flops = layer.matmul_flops(),
              .counted_as_published = operands.bytes() + shards.main.bytes() + layer.arena_peak()};
  entry.line.add("seq", sizes.tokens)
      .add("tiling", tiling.text(), "plan", message(entry.plan), "precision", PrecisionT::name, "ranks", ranks)
      .add("threads", sizes.threads, "hidden", sizes.hidden, "intermediate", sizes.intermediate)
      .add("peak_bytes", operands.bytes() + shards.bytes() + layer.arena_peak())
      .add("activation_bytes", layer.arena_peak(), "stream_bytes", operands.streams.bytes())
      .add("main_bytes", shards.main.bytes(), "model_bytes", shards.model.bytes())
      .add("gathered_bytes", operands.weights.bytes(), "gradient_bytes", operands.gradients.bytes())
      .add("gradient_shard_bytes", shards.gradients.bytes(), "matmul_flops", layer.matmul_flops());
  return entry;
}

/// Plans with a memory budget: the published tiled peak minus our other memory, with matmul scratch included in the
/// budget. Without a published peak, half of the memory of the untiled plan.
template <class PrecisionT>
Entry planned_budget(const MlpSizes& sizes, const Entry& untiled, int ranks) {
  const auto with = [&](std::int64_t budget) {
    return planned<PrecisionT>(sizes, tiling::RunTimeTiling::budget(budget), ranks);
  };
  const std::optional<std::int64_t> published = Published(sizes).tiled;
  if (!published) return with(std::max<std::int64_t>(untiled.plan.peak_bytes() / 2, 1));
  std::int64_t budget = *published - (untiled.counted_as_published - untiled.activation_bytes);
  Entry entry = with(budget);
  while (entry.counted_as_published > *published) entry = with(budget -= entry.counted_as_published - *published);
  return entry;
}

/// Returns the cases: for every length, untiled first, then the tilings to compare with it.
template <class PrecisionT>
std::vector<Entry> entries(const BenchOptions& options, MlpSizes sizes, int ranks) {
  using tiling::RunTimeTiling;
  std::vector<std::int64_t> lengths;
  for (std::int64_t tokens = 2048; tokens <= 131072; tokens *= 2) lengths.push_back(tokens);
  if (options.seq_len > 0) lengths = {options.seq_len};
  std::vector<Entry> list;
  for (const std::int64_t tokens : lengths) {
    sizes.tokens = tokens;
    list.push_back(planned<PrecisionT>(sizes, {}, ranks));
    const Entry untiled = list.back();
    list.push_back(planned<PrecisionT>(sizes, RunTimeTiling::tiles(4), ranks));
    list.push_back(planned<PrecisionT>(sizes, RunTimeTiling::tokens(4096), ranks));
    list.push_back(planned_budget<PrecisionT>(sizes, untiled, ranks));
    for (Entry& entry : std::span(list).last(4)) entry.timed = !options.dry_run && tokens <= options.up_to;
  }
  return list;
}

/// Seconds of forward (with its all-gather) and backward (with its reduction) on the slowest rank.
struct Times {
  double forward = 0, backward = 0;
};

template <class PrecisionT>
Times timed(Comm& communicator, const Entry& entry, std::int64_t repeats) {
  using Compute = typename PrecisionT::Compute;
  device::Ledger ledger;
  const MlpOperands<Cpu, Compute> operands(ledger, entry.sizes);
  const Shards<Cpu, Compute> shards(ledger, entry.sizes, communicator.rank(), communicator.size());
  MlpLayer<nn::Local<Cpu, PrecisionT>> layer(operands, std::make_shared<nn::TilePlans>(*entry.plans),
                                             entry.activation_bytes);
  const std::vector<comm::Segment<Compute>> weights = {
      {shards.weights().data(), reinterpret_cast<Compute*>(operands.weights.data()), shards.counts}};
  const std::vector<comm::Segment<float>> gradients = {{reinterpret_cast<float*>(shards.gradients.data()),
                                                        reinterpret_cast<float*>(operands.gradients.data()),
                                                        shards.counts}};
  Rounds rounds;
  const std::size_t forward = rounds.add(
      [&] {
        comm::all_gather(communicator, weights).wait();
        layer.forward();
      },
      [&] { layer.restore(); });
  const std::size_t backward = rounds.add([&] {
    layer.backward();
    comm::reduce_scatter<float>(communicator, gradients, Write::overwrite).wait();
  });
  rounds.run(
      repeats, [&] { comm::barrier(communicator, {"bench"}); }, repeats > 1);
  comm::reduce(communicator, rounds.samples(), comm::Reduction::max, {"bench"});
  require(layer.arena_peak() == entry.activation_bytes, "bench: ", entry.tiling.text(), " of ", entry.sizes.tokens,
          " tokens took ", layer.arena_peak(), " bytes of activations, its dry run said ", entry.activation_bytes);
  return {rounds.median_seconds(forward), rounds.median_seconds(backward)};
}

template <class PrecisionT>
void run(Comm& communicator, const std::vector<Entry>& list, std::int64_t repeats) {
  double untiled_seconds = 0, untiled_flops = 0;
  std::vector<std::pair<tiling::TilePlan, Times>> known;  // times for this length; equal plans are timed only once
  for (const Entry& entry : list) {
    const bool is_untiled = entry.tiling == tiling::RunTimeTiling();
    const auto entry_flops = static_cast<double>(entry.matmul_flops);
    Line line = entry.line;
    if (is_untiled) {
      known.clear();
      untiled_flops = entry_flops;
    }
    if (entry.timed) {
      const auto same = std::find_if(known.begin(), known.end(), [&](auto& k) { return k.first == entry.plan; });
      const Times times = same != known.end() ? same->second : timed<PrecisionT>(communicator, entry, repeats);
      known.push_back({entry.plan, times});
      line.add("forward_ms", 1e3 * times.forward).add("backward_ms", 1e3 * times.backward);
      if (is_untiled)
        untiled_seconds = times.forward + times.backward;
      else
        line.add("ratio_to_untiled", (times.forward + times.backward) / untiled_seconds);
    }
    if (communicator.rank() != 0) continue;
    if (!is_untiled) line.add("flops_to_untiled", entry_flops / untiled_flops);
    const Published published(entry.sizes);
    line.add("published_untiled_bytes", published.untiled).add("published_tiled_bytes", published.tiled).print();
  }
}

template <class PrecisionT>
int measure(const BenchOptions& options, const train::FlagSet& flags) {
  train::LaunchOptions launch = options.launch;
  launch.ranks = flags.is_given("comm") ? options.stack.comm.ranks : 2;
  const auto ranks = static_cast<int>(launch.ranks);
  const MlpSizes sizes{.hidden = flags.is_given("hidden") ? options.hidden : 4096,
                       .intermediate = options.intermediate > 0 ? options.intermediate : 12288,
                       .threads = comm::planned_threads(launch.threads, ranks)};
  const std::vector<Entry> list = entries<PrecisionT>(options, sizes, ranks);
  launch.deadline_seconds = std::max(launch.deadline_seconds, 3600.0);  // ranks wait for each other after long passes
  return train::launch<Comm>(launch, [&](Comm& communicator) {
    train::use_threads(sizes.threads);
    run<PrecisionT>(communicator, list, flags.is_given("repeats") ? options.repeats : 1);
  });
}

}  // namespace

int measure_mlp_table(const BenchOptions& options, const train::FlagSet& flags) {
  return (options.bf16() ? measure<Bf16Mixed> : measure<Fp32>)(options, flags);
}

}  // namespace fsdp::bench
