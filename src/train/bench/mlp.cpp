// SPDX-License-Identifier: Apache-2.0
/// @file
/// The SwiGLU MLP alone, against the nine matmuls that it consists of.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include <fsdp/device/cpu.hpp>
#include <fsdp/device/meta.hpp>
#include <fsdp/nn/swiglu_mlp.hpp>
#include <fsdp/train/bench/alone.hpp>
#include <fsdp/train/bench/floors.hpp>
#include <fsdp/train/bench/lines.hpp>
#include <fsdp/train/bench/rounds.hpp>

namespace fsdp::train::bench {
namespace {

using device::Cpu;
using device::MemoryKind;

struct Sizes {
  std::int64_t tokens = 0, hidden = 0, intermediate = 0;
  int threads = 1;
};

/// x [S, H], y and dy [S, H], weights [3, I, H] and their gradients, laid out as a gather slot has them.
template <class Device, class Compute>
struct Operands {
  Operands(device::Ledger& ledger, const Sizes& sizes)
      : sizes(sizes),
        streams(ledger, MemoryKind::activations, 3 * stream_size() * element),
        weights(ledger, MemoryKind::gathered, 3 * weight_size() * element),
        gradients(ledger, MemoryKind::gradients, 3 * weight_size() * std::int64_t{sizeof(float)}) {
    if constexpr (!Device::counts_only) {
      fill_uniform({reinterpret_cast<Compute*>(streams.data()), {3 * stream_size()}}, 1.0f);
      fill_uniform({reinterpret_cast<Compute*>(weights.data()), {3 * weight_size()}}, 0.05f);
    }
  }
  static constexpr auto element = std::int64_t{sizeof(Compute)};
  std::int64_t stream_size() const { return sizes.tokens * sizes.hidden; }
  std::int64_t weight_size() const { return sizes.intermediate * sizes.hidden; }

  Tensor<Compute> stream(int index) const {
    return {reinterpret_cast<Compute*>(streams.data()) + index * stream_size(), {sizes.tokens, sizes.hidden}};
  }
  Tensor<Compute> x() const { return stream(0); }
  Tensor<Compute> y() const { return stream(1); }
  Tensor<Compute> dy() const { return stream(2); }
  /// `count` of the weights from `index` on; down is [H, I].
  template <class T>
  Tensor<T> matrices(const device::Block<Device>& block, int index, int count) const {
    T* const data = reinterpret_cast<T*>(block.data()) + index * weight_size();
    return index == 2 ? Tensor<T>(data, {sizes.hidden, sizes.intermediate})
                      : Tensor<T>(data, {count * sizes.intermediate, sizes.hidden});
  }
  Tensor<const Compute> weight(int index, int count = 1) const { return matrices<Compute>(weights, index, count); }
  Tensor<float> gradient(int index, int count = 1) const { return matrices<float>(gradients, index, count); }

  Sizes sizes;
  device::Block<Device> streams, weights, gradients;
};

/// The module with one tiling and all its memory; on Meta it only says how much.
template <class L>
class Mlp {
 public:
  using Device = typename L::Device;
  using Module = nn::SwiGluMlp<L>;
  using Arena = typename Device::Arena;

  Mlp(const Sizes& sizes, const tiling::RunTime& tiling, std::int64_t arena_bytes)
      : module_{{}, sizes.hidden, sizes.intermediate},
        arena_(make_arena(arena_bytes)),
        stream_(arena_, sizes.threads),
        context_{.arena = arena_, .stream = stream_, .tiling = tiling, .sequence_length = sizes.tokens},
        operands_(ledger_, sizes) {}
  Mlp(const Mlp&) = delete;
  Mlp& operator=(const Mlp&) = delete;

  /// A backward wrote dx over dy: gives it its values back.
  void restore() { fill_uniform(operands_.dy(), 1.0f); }
  void forward() {
    mark_ = arena_.mark(Arena::End::low);
    module_.forward(context_, weights(), saved_, operands_.x(), operands_.y());
  }
  void backward() {
    std::fill(std::begin(written_), std::end(written_), false);
    const typename Module::Gradients gradients{{operands_.gradient(0), &written_[0]},
                                               {operands_.gradient(1), &written_[1]},
                                               {operands_.gradient(2), &written_[2]}};
    module_.backward(context_, weights(), gradients, saved_, operands_.dy());
    arena_.release(Arena::End::low, mark_);
  }

  std::int64_t arena_peak() const { return arena_.peak(); }
  std::int64_t peak_bytes() const { return ledger_.peak(); }
  std::int64_t stream_bytes() const { return operands_.streams.bytes(); }
  std::int64_t weight_bytes() const { return operands_.weights.bytes(); }
  std::int64_t gradient_bytes() const { return operands_.gradients.bytes(); }

 private:
  Arena make_arena(std::int64_t bytes) {
    if constexpr (Device::counts_only)
      return Arena::unbounded();
    else
      return Arena(ledger_, bytes);
  }
  typename Module::Weights weights() const { return {operands_.weight(0), operands_.weight(1), operands_.weight(2)}; }

  Module module_;
  device::Ledger ledger_;
  Arena arena_;
  typename Device::Stream stream_;
  nn::Context<L> context_;
  Operands<Device, typename L::Compute> operands_;
  typename Module::Saved saved_;
  typename Arena::Mark mark_;
  bool written_[3] = {};
};

/// The same matmuls with nothing between them, in memory of the same sizes.
template <class Compute>
class Matmuls {
 public:
  Matmuls(const Sizes& sizes, std::int64_t scratch_bytes)
      : arena_(ledger_, scratch_bytes),
        stream_(arena_, sizes.threads),
        operands_(ledger_, sizes),
        gate_up_(ledger_, MemoryKind::activations, 2 * sizes.tokens * sizes.intermediate * Ops::element),
        h_(ledger_, MemoryKind::activations, sizes.tokens * sizes.intermediate * Ops::element) {}

  /// As they stand in the formula: gate, up and down each by itself, all operands contiguous.
  void nine() {
    const std::int64_t width = operands_.sizes.intermediate;
    const auto gate = matrix(gate_up_, 0, width);                             // [S, I]
    const auto up = matrix(gate_up_, operands_.sizes.tokens * width, width);  // [S, I]
    const auto h = matrix(h_, 0, width);                                      // [S, I]
    product<Compute>(operands_.x(), device::transposed(operands_.weight(0)), gate);
    product<Compute>(operands_.x(), device::transposed(operands_.weight(1)), up);
    product<Compute>(h, device::transposed(operands_.weight(2)), operands_.y());
    product<Compute>(operands_.dy(), operands_.weight(2), h);
    product<float>(device::transposed(operands_.dy()), h, operands_.gradient(2));
    product<float>(device::transposed(gate), operands_.x(), operands_.gradient(0));
    product<float>(device::transposed(up), operands_.x(), operands_.gradient(1));
    product<Compute>(gate, operands_.weight(0), operands_.y());
    product<Compute>(up, operands_.weight(1), operands_.y(), Write::accumulate);
  }

  /// As the untiled module calls them: gate and up are one matmul.
  void six() {
    const auto gate_up = matrix(gate_up_, 0, 2 * operands_.sizes.intermediate);  // [S, 2 I]
    const auto h = matrix(h_, 0, operands_.sizes.intermediate);                  // [S, I]
    product<Compute>(operands_.x(), device::transposed(operands_.weight(0, 2)), gate_up);
    product<Compute>(h, device::transposed(operands_.weight(2)), operands_.y());
    product<Compute>(operands_.dy(), operands_.weight(2), h);
    product<float>(device::transposed(operands_.dy()), h, operands_.gradient(2));
    product<float>(device::transposed(gate_up), operands_.x(), operands_.gradient(0, 2));
    product<Compute>(gate_up, operands_.weight(0, 2), operands_.y());
  }

 private:
  using Ops = Operands<Cpu, Compute>;
  Tensor<Compute> matrix(const CpuBlock& block, std::int64_t offset, std::int64_t columns) const {
    return {reinterpret_cast<Compute*>(block.data()) + offset, {operands_.sizes.tokens, columns}};
  }
  template <class C>
  void product(device::Operand<Compute> a, device::Operand<Compute> b, Tensor<C> c, Write write = Write::overwrite) {
    Cpu::matmul<Compute, C>(stream_, a, b, c, write);
  }

  device::Ledger ledger_;
  Cpu::Arena arena_;
  Cpu::Stream stream_;
  Ops operands_;
  CpuBlock gate_up_, h_;
};

template <class PrecisionT>
void measure(const BenchOptions& options, const Sizes& sizes, const std::vector<TilingChoice>& tilings,
             bool print_untiled) {
  using Layer = Mlp<nn::Local<Cpu, PrecisionT, tiling::RunTime>>;
  using Planned = Mlp<nn::Local<device::Meta, PrecisionT, tiling::RunTime>>;
  struct Measured {
    TilingChoice tiling;
    std::unique_ptr<Layer> layer;
    std::size_t forward = 0, backward = 0;
  };
  Rounds rounds;
  std::vector<Measured> list;
  std::int64_t largest_arena = 0;
  for (const TilingChoice& choice : tilings) {
    Planned planned(sizes, policy_of(choice), 0);
    planned.forward();
    planned.backward();
    largest_arena = std::max(largest_arena, planned.arena_peak());
    auto layer = std::make_unique<Layer>(sizes, policy_of(choice), planned.arena_peak());
    Layer& own = *layer;
    const std::size_t forward = rounds.add([&own] { own.forward(); }, [&own] { own.restore(); });
    const std::size_t backward = rounds.add([&own] { own.backward(); });
    list.push_back({choice, std::move(layer), forward, backward});
  }
  Matmuls<typename PrecisionT::Compute> matmuls(sizes, largest_arena);
  const std::size_t nine = rounds.add([&] { matmuls.nine(); });
  const std::size_t six = rounds.add([&] { matmuls.six(); });
  rounds.run(options.repeats);

  const auto layer_seconds = [&](const Measured& measured, std::size_t round) {
    return rounds.seconds(measured.forward, round) + rounds.seconds(measured.backward, round);
  };
  for (std::size_t i = print_untiled ? 0 : 1; i < list.size(); ++i) {
    const Measured& measured = list[i];
    const auto ratio_to = [&](std::size_t floor) {
      return rounds.median_of(
          [&](std::size_t round) { return layer_seconds(measured, round) / rounds.seconds(floor, round); });
    };
    MlpLine line{.seq = sizes.tokens,
                 .tiling = name_of(measured.tiling),
                 .precision = std::string(PrecisionT::name),
                 .threads = sizes.threads,
                 .hidden = sizes.hidden,
                 .intermediate = sizes.intermediate,
                 .forward_ms = 1e3 * rounds.median_seconds(measured.forward),
                 .backward_ms = 1e3 * rounds.median_seconds(measured.backward),
                 .peak_bytes = measured.layer->peak_bytes(),
                 .activation_bytes = measured.layer->arena_peak(),
                 .stream_bytes = measured.layer->stream_bytes(),
                 .weight_bytes = measured.layer->weight_bytes(),
                 .gradient_bytes = measured.layer->gradient_bytes(),
                 .gemm_floor_ms = 1e3 * rounds.median_seconds(nine),
                 .module_gemm_ms = 1e3 * rounds.median_seconds(six),
                 .ratio = ratio_to(nine),
                 .ratio_to_module_gemm = ratio_to(six),
                 .ratio_to_untiled = {}};
    if (i > 0)
      line.ratio_to_untiled = rounds.median_of(
          [&](std::size_t round) { return layer_seconds(measured, round) / layer_seconds(list[0], round); });
    std::printf("%s\n", json_line(line).c_str());
    std::fflush(stdout);
  }
}

}  // namespace

int measure_mlp(const BenchOptions& options) {
  using Kind = TilingChoice::Kind;
  const bool asked = std::find(options.given.begin(), options.given.end(), "tiling") != options.given.end();
  std::vector<TilingChoice> tilings{{}};  // untiled is always measured, for the others' ratio to it
  if (!asked)
    tilings.insert(tilings.end(), {{.kind = Kind::tiles, .number = 4}, {.kind = Kind::tokens, .number = 1024}});
  else if (options.stack.tiling.kind != Kind::off)
    tilings.push_back(options.stack.tiling);
  const bool print_untiled = tilings.size() != 2;
  Sizes sizes{.hidden = options.hidden,
              .intermediate = options.intermediate > 0 ? options.intermediate : 3072,
              .threads = static_cast<int>(threads_per_rank(options.stack.threads, device::available_cores(), 1))};
  for (const std::int64_t tokens : {std::int64_t{2048}, std::int64_t{4096}}) {
    sizes.tokens = options.seq_len > 0 ? options.seq_len : tokens;
    if (options.stack.precision == PrecisionChoice::bf16)
      measure<Bf16Mixed>(options, sizes, tilings, print_untiled);
    else
      measure<Fp32>(options, sizes, tilings, print_untiled);
    if (options.seq_len > 0) break;
  }
  return 0;
}

}  // namespace fsdp::train::bench
