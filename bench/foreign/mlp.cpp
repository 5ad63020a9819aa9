// SPDX-License-Identifier: Apache-2.0
/// @file
/// `mlp`: a training step of a chain of linear layers. Measures its time, compared with its matrix products alone and
/// its exchange alone, and its resident memory. bench/fsdp2_mlp.py runs the same step with PyTorch's FSDP2: the same
/// values, loss and optimizer update.
#include <sys/resource.h>

#include <cmath>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "../lines.hpp"
#include "foreign.hpp"
#include "products.hpp"

namespace fsdp::bench::foreign {
namespace {

constexpr double lr = 1e-4;

/// Returns value `index` of a pseudo-random series, in [-1, 1). fsdp2_mlp.py computes the same values.
float value_of(std::uint32_t series, std::int64_t index) {
  std::uint32_t hash = static_cast<std::uint32_t>(index) * 2654435761u + series * 40503u;
  hash ^= hash >> 15;
  hash *= 2246822519u;
  hash ^= hash >> 13;
  return static_cast<float>(hash >> 8) / 8388608.0f - 1;
}
constexpr std::uint32_t inputs = 1001, targets = 1002;  // series numbers; the weights of layer n have number n

struct Sizes {
  std::int64_t layers = 0, width = 0, rows = 0;
};

std::vector<Unit> units_of(const Sizes& sizes) {
  std::vector<Unit> units;
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    const std::string name = "layer" + std::to_string(i);
    units.push_back({.name = name,
                     .parameters = {{.name = name + ".weight", .shape = {sizes.width, sizes.width}},
                                    {.name = name + ".bias", .shape = {sizes.width}, .initial = Initial::zeros}}});
  }
  return units;
}

/// The order of computations: forward through all layers but the last, forward and backward of the last as one
/// computation, then backward.
Order order_of(const Sizes& sizes) {
  std::vector<int> uses;
  for (int i = 0; i + 1 < sizes.layers; ++i) uses.push_back(i);
  return mirrored(uses, static_cast<int>(sizes.layers) - 1);
}

/// Memory of a batch: the input x [rows, width] of each layer, the output of the last layer, and the gradient that
/// backward propagates.
class Batch {
 public:
  Batch(const Sizes& sizes, int rank)
      : sizes_(sizes), memory_(static_cast<std::size_t>((sizes.layers + 4) * sizes.rows * sizes.width)) {
    const std::int64_t size = sizes.rows * sizes.width;
    for (std::int64_t i = 0; i < size; ++i) {
      at(0).data()[i] = value_of(inputs, rank * size + i);
      target().data()[i] = value_of(targets, rank * size + i);
    }
  }
  Tensor<float> at(std::int64_t layer) {
    return {memory_.data() + layer * sizes_.rows * sizes_.width, {sizes_.rows, sizes_.width}};
  }
  Tensor<float> target() { return at(sizes_.layers + 1); }
  Tensor<float> gradient(std::int64_t which) { return at(sizes_.layers + 2 + which % 2); }

 private:
  Sizes sizes_;
  std::vector<float> memory_;
};

using Array = Eigen::Map<Eigen::Array<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
using ConstRow = Eigen::Map<const Eigen::Array<float, 1, Eigen::Dynamic>>;
Array array(Tensor<float> x) { return {x.data(), x.extent(0), x.extent(1)}; }

/// A rank's network, its batch and its optimizer.
class Mlp {
 public:
  Mlp(Comm& communicator, const Sizes& sizes, Product product)
      : sizes_(sizes),
        share_(1.0 / static_cast<double>(communicator.size() * sizes.rows * sizes.width)),
        product_(std::move(product)),
        batch_(sizes, communicator.rank()),
        sharded_(communicator, units_of(sizes), {},
                 {.orders = {order_of(sizes)}, .optimizer = {.weight_decay = 0.01}, .rules = {.clip = 1}}) {
    const float limit = std::sqrt(6.0f / static_cast<float>(sizes.width));
    sharded_.fill([&](const Parameter& parameter, std::int64_t begin, std::span<float> values) {
      const auto layer = static_cast<std::uint32_t>(std::stoi(parameter.name.substr(5)));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = parameter.shape.rank == 2 ? limit * value_of(layer, begin + static_cast<std::int64_t>(i)) : 0;
    });
  }

  void step() {
    const int last = static_cast<int>(sizes_.layers) - 1;
    auto pass = sharded_.train();
    for (int layer = 0; layer < last; ++layer) {
      const auto use = pass.forward(layer);
      forward(use, layer);
      Array y = array(batch_.at(layer + 1));
      y = y.max(0.0f);
    }
    double loss = 0;
    {
      const auto use = pass.both(last);
      forward(use, last);
      const Array y = array(batch_.at(last + 1)), target = array(batch_.target());
      Array d = array(batch_.gradient(last));
      d = y - target;
      loss = static_cast<double>(d.square().sum()) * share_;
      d *= static_cast<float>(2 * share_);
      backward(use, last);
    }
    for (int layer = last; layer-- > 0;) {
      const auto use = pass.backward(layer);
      Array d = array(batch_.gradient(layer));
      d = (array(batch_.at(layer + 1)) > 0.0f).select(d, 0.0f);
      backward(use, layer);
    }
    pass.finish();
    loss_ = sharded_.step(loss, {.lr = lr}).loss;
  }
  double loss() const { return loss_; }
  std::int64_t held_bytes() { return sharded_.held().sum(); }

 private:
  template <class Use>
  void forward(const Use& use, int layer) {
    product_({batch_.at(layer)}, device::transposed(use.weight(0)), batch_.at(layer + 1));
    array(batch_.at(layer + 1)).rowwise() += ConstRow(use.weight(1).data(), sizes_.width);
  }
  /// Runs backward of a layer, from the gradient of its output before relu.
  template <class Use>
  void backward(const Use& use, int layer) {
    const auto weight = use.gradient(0), bias = use.gradient(1);
    require(weight.next() == Write::overwrite && bias.next() == Write::overwrite, "mlp: there is one micro-batch");
    product_(device::transposed(batch_.gradient(layer)), {batch_.at(layer)}, weight.tensor);
    Eigen::Map<Eigen::Array<float, 1, Eigen::Dynamic>>(bias.tensor.data(), sizes_.width) =
        array(batch_.gradient(layer)).colwise().sum();
    if (layer > 0) product_({batch_.gradient(layer)}, {use.weight(0)}, batch_.gradient(layer - 1));
  }

  Sizes sizes_;
  double share_;
  Product product_;
  Batch batch_;
  Shards sharded_;
  double loss_ = 0;
};

/// The matrix products of a rank's step alone, on weights and activations of the same sizes.
class Floor {
 public:
  Floor(const Sizes& sizes, Product product)
      : sizes_(sizes),
        product_(std::move(product)),
        batch_(sizes, 0),
        weights_(static_cast<std::size_t>(sizes.layers * sizes.width * sizes.width), 0.01f),
        gradients_(static_cast<std::size_t>(2 * sizes.width * sizes.width)) {}

  void run() {
    for (std::int64_t layer = 0; layer < sizes_.layers; ++layer)
      product_({batch_.at(layer)}, device::transposed(weight(layer)), batch_.at(layer + 1));
    for (std::int64_t layer = sizes_.layers; layer-- > 0;) {
      const Tensor<float> gradient(gradients_.data() + layer % 2 * sizes_.width * sizes_.width, shape());
      product_(device::transposed(batch_.gradient(layer)), {batch_.at(layer)}, gradient);
      if (layer > 0) product_({batch_.gradient(layer)}, {weight(layer)}, batch_.gradient(layer - 1));
    }
  }
  double flops() const {
    return 2.0 * static_cast<double>((3 * sizes_.layers - 1) * sizes_.rows * sizes_.width * sizes_.width);
  }

 private:
  Shape shape() const { return {sizes_.width, sizes_.width}; }
  Tensor<const float> weight(std::int64_t layer) const {
    return {weights_.data() + layer * sizes_.width * sizes_.width, shape()};
  }

  Sizes sizes_;
  Product product_;
  Batch batch_;
  std::vector<float> weights_, gradients_;
};

/// The processor time of calls of f on this thread in milliseconds: the median, on the slowest rank. Other processes on
/// the cores affect it less than wall time.
class ProcessorTime {
 public:
  template <class F>
  void add(F f) {
    const double begin = now();
    f();
    samples_.push_back((now() - begin) * 1e3);
  }
  double slowest(Comm& communicator) {
    comm::reduce(communicator, std::span<double>(samples_), comm::Reduction::max, {"bench"});
    return median({samples_.begin() + 1, samples_.end()});  // the first sample is the untimed round
  }

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  std::vector<double> samples_;
};

/// Returns the peak resident memory of this process so far, in bytes.
std::int64_t resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

void measure(Comm& communicator, const Options& options) {
  const Sizes sizes{.layers = options.layers, .width = options.width, .rows = options.rows};
  const auto product = [&] { return product_by(options.matmul, sizes.rows, sizes.width, sizes.width); };
  Mlp mlp(communicator, sizes, product());
  mlp.step();
  comm::barrier(communicator, {"bench"});
  const std::int64_t resident = resident_bytes();  // measured before the lower bounds allocate memory
  comm::barrier(communicator, {"bench"});

  Floor floor(sizes, product());
  Exchange exchange(communicator, [&] { mlp.step(); });
  Rounds rounds;
  ProcessorTime of_step, of_products;
  rounds.add([&] { of_step.add([&] { mlp.step(); }); });
  rounds.add([&] { of_products.add([&] { floor.run(); }); });
  rounds.add([&] { exchange.run(); });
  run_together(communicator, rounds, options.repeats_or(7));
  const double step_cpu = of_step.slowest(communicator), products_cpu = of_products.slowest(communicator);
  if (communicator.rank() != 0) return;
  Line("mlp")
      .add("matmul", options.matmul, "ranks", std::int64_t{communicator.size()}, "layers", sizes.layers)
      .add("width", sizes.width, "rows", sizes.rows, "step_ms", rounds.median_seconds(0) * 1e3)
      .add("matmul_ms", rounds.median_seconds(1) * 1e3, "matmul_gflops", floor.flops() / products_cpu / 1e6)
      .add("exchange_ms", rounds.median_seconds(2) * 1e3)
      .add("ratio", rounds.median_of([&](std::size_t r) {
        return rounds.seconds(0, r) / (rounds.seconds(1, r) + rounds.seconds(2, r));
      }))
      .add("cpu_ms", step_cpu, "matmul_cpu_ms", products_cpu, "resident_bytes", resident)
      .add("held_bytes", mlp.held_bytes() * communicator.size(), "loss", mlp.loss())
      .print();
}

}  // namespace

void measure_mlp(const Options& options) {
  // Reports an unknown name before the ranks start.
  product_by(options.matmul, options.rows, options.width, options.width);
  on_ranks(options.ranks, [&](Comm& communicator) { measure(communicator, options); });
}

}  // namespace fsdp::bench::foreign
