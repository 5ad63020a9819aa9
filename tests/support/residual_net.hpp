// SPDX-License-Identifier: Apache-2.0
/// @file
/// A user-defined network: units y = x + a (W x + b), used in any order, and a squared error. It uses sharding only
/// through the calls of a Pass.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/sharded.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

namespace fsdp::test {

using Comm = comm::Threads<>;
template <class Sharding, class Precision = Fp32>
using NetStack = Stack<Sharding, Comm, Precision>;

namespace net {

inline constexpr std::int64_t width = 5;  ///< no number of ranks divides it
inline constexpr std::int64_t rows = 3;   ///< rows of a micro-batch

/// Pseudo-random numbers in [-1, 1) that depend only on their index.
inline float number(std::int64_t i) {
  return static_cast<float>(static_cast<double>(mixed(static_cast<std::uint64_t>(i)) >> 11) * 0x1p-52 - 1.0);
}

inline Unit unit(const std::string& name) {
  return {.name = name,
          .parameters = {{.name = name + ".w", .shape = {width, width}, .initial = Initial::normal(0.3)},
                         {.name = name + ".b", .shape = {width}, .initial = Initial::normal(0.1)}}};
}
inline std::vector<Unit> units(int count, const std::string& prefix = "unit") {
  std::vector<Unit> list;
  for (int i = 0; i < count; ++i) list.push_back(unit(prefix + std::to_string(i)));
  return list;
}

/// Identifies a micro-batch.
struct Place {
  int rank = 0;
  int micro_batch = 0;
  int step = 0;

  std::int64_t seed() const { return 1'000'000 * (rank + 1) + 10'000 * micro_batch + 100 * step; }
};

using Values = std::vector<float>;  // [rows, width]

inline Values inputs(const Place& place) {
  Values x;
  for (std::int64_t i = 0; i < rows * width; ++i) x.push_back(number(place.seed() + i));
  return x;
}
inline Values targets(const Place& place) {
  Values y = inputs(place);
  for (float& value : y) value = 0.5f - value;
  return y;
}

/// Writes `values` to a gradient or adds them, as the gradient's write mode requires.
template <class T>
void write(const GradientView<T>& gradient, const Values& values) {
  if (!gradient.wanted()) return;
  const bool adds = gradient.next() == Write::accumulate;
  T* const to = gradient.tensor.data();
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = values[i] + (adds ? to[i] : T(0));
}

/// Returns x + a (W x + b) for each row.
template <class T>
Values forward(Tensor<const T> w, Tensor<const T> b, const Values& x, float a = 0.5f) {
  Values y = x;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t o = 0; o < width; ++o) {
      auto sum = static_cast<float>(b.data()[o]);
      for (std::int64_t i = 0; i < width; ++i)
        sum += static_cast<float>(w.data()[o * width + i]) * x[static_cast<std::size_t>(row * width + i)];
      y[static_cast<std::size_t>(row * width + o)] += a * sum;
    }
  return y;
}

/// The backward of `forward`: writes the gradients of its weights, and returns dx for dy.
template <class T, class G>
Values backward(Tensor<const T> w, const GradientView<G>& dw, const GradientView<G>& db, const Values& x,
                const Values& dy, float a = 0.5f) {
  Values dx = dy, of_w(width * width), of_b(width);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t o = 0; o < width; ++o) {
      const float d = a * dy[static_cast<std::size_t>(row * width + o)];
      of_b[static_cast<std::size_t>(o)] += d;
      for (std::int64_t i = 0; i < width; ++i) {
        of_w[static_cast<std::size_t>(o * width + i)] += d * x[static_cast<std::size_t>(row * width + i)];
        dx[static_cast<std::size_t>(row * width + i)] += d * static_cast<float>(w.data()[o * width + i]);
      }
    }
  write(dw, of_w);
  write(db, of_b);
  return dx;
}

/// Returns half the squared distance to the targets, and turns y into its gradient.
inline double error(Values& y, const Values& target) {
  double loss = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] -= target[i];
    loss += 0.5 * static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  return loss;
}

/// Options of a pass.
struct Loop {
  std::vector<int> uses;  ///< units in the order of forward
  int micro_batches = 1;
  int order = 0;
  int step = 0;
  /// Whether a use of a unit is active; if not, its weights are not read and no gradient is written.
  bool (*looks)(const Values& x, int unit) = [](const Values&, int) { return true; };
};

/// Forward and backward of a unit: as in `unit` for two tensors; y = x (1 + p) for one tensor with one element p;
/// otherwise y = x.
/// @{
template <class UseT>
Values forward_of(const UseT& use, std::size_t tensors, const Values& x) {
  if (tensors == 2) return forward(use.weight(0), use.weight(1), x);
  Values y = x;
  if (tensors == 1 && use.weight(0).numel() == 1)
    for (float& value : y) value *= 1 + static_cast<float>(use.weight(0).data()[0]);
  return y;
}
template <class UseT>
Values backward_of(const UseT& use, std::size_t tensors, const Values& x, const Values& dy) {
  if (tensors == 2) return backward(use.weight(0), use.gradient(0), use.gradient(1), x, dy);
  Values dx = dy;
  if (tensors == 0) return dx;
  Values of_p(static_cast<std::size_t>(use.weight(0).numel()));
  if (of_p.size() == 1)
    for (std::size_t i = 0; i < dx.size(); ++i) {
      of_p[0] += dy[i] * x[i];
      dx[i] *= 1 + static_cast<float>(use.weight(0).data()[0]);
    }
  write(use.gradient(0), of_p);
  return dx;
}
/// @}

/// Activations that pass through units of two tensors, forward and backward.
struct Walk {
  Values x;
  std::vector<Values> saved = {};

  template <class UseT>
  void forward(const UseT& use) {
    saved.push_back(x);
    x = forward_of(use, 2, x);
  }
  template <class UseT>
  void backward(const UseT& use) {
    x = backward_of(use, 2, saved.back(), x);
    saved.pop_back();
  }
};

/// Runs a training pass and returns this rank's loss. The gradients are reduced and sharded afterwards.
template <class SharedT>
double train(SharedT& sharded, const Loop& run) {
  const int rank = sharded.module().communicator().rank();
  double loss = 0;
  auto pass = sharded.train(run.micro_batches, run.order);
  for (int m = 0; m < run.micro_batches; ++m) {
    const Place place{.rank = rank, .micro_batch = m, .step = run.step};
    std::vector<Values> saved;
    Values x = inputs(place);
    for (const int unit : run.uses) {
      auto use = pass.forward(unit);
      saved.push_back(x);
      if (run.looks(x, unit)) x = forward_of(use, sharded.module().references(unit).size(), x);
    }
    loss += error(x, targets(place));
    for (std::size_t i = run.uses.size(); i-- > 0;) {
      auto use = pass.backward(run.uses[i]);
      if (run.looks(saved[i], run.uses[i]))
        x = backward_of(use, sharded.module().references(run.uses[i]).size(), saved[i], x);
    }
  }
  pass.finish();
  return loss;
}

/// Returns the loss of one micro-batch without gradients.
template <class SharedT>
double evaluate(SharedT& sharded, const Loop& run, int micro_batch = 0) {
  const Place place{.rank = sharded.module().communicator().rank(), .micro_batch = micro_batch, .step = run.step};
  auto pass = sharded.evaluate(run.order);
  Values x = inputs(place);
  for (const int unit : run.uses) {
    auto use = pass.forward(unit);
    if (run.looks(x, unit)) x = forward_of(use, sharded.module().references(unit).size(), x);
  }
  pass.finish();
  return error(x, targets(place));
}

/// Trains `steps` steps and returns the losses summed over ranks.
template <class SharedT>
std::vector<double> steps(SharedT& sharded, Loop run, int count, double lr = 1e-2) {
  std::vector<double> losses;
  for (int end = run.step + count; run.step < end; ++run.step)
    losses.push_back(sharded.step(train(sharded, run), {.lr = lr}).loss);
  return losses;
}

/// Whole tensors by name.
template <class SharedT>
std::map<std::string, Values> weights(SharedT& sharded, const std::vector<std::string>& patterns = {"*"}) {
  std::map<std::string, Values> all;
  sharded.with_full(patterns, [&](const Parameter& parameter, Tensor<const float> values) {
    all[parameter.name] = Values(values.data(), values.data() + values.numel());
  });
  return all;
}

/// Compares the largest gradient element of each piece with central differences of the loss.
template <class SharedT, class Expect>
void check_gradients(SharedT& sharded, const Loop& run, const Expect& expect) {
  auto& module = sharded.module();
  auto& communicator = module.communicator();
  const auto loss = [&] {
    double sum = 0;
    for (int m = 0; m < run.micro_batches; ++m) sum += evaluate(sharded, run, m);
    return comm::sum_over_ranks(communicator, sum, {"test"});
  };
  train(sharded, run);
  std::map<std::string, std::pair<std::int64_t, double>> largest;  // of the pieces that this rank owns
  for (const auto& piece : module.shards())
    for (std::int64_t i = 0; piece.owned && i < piece.main.numel(); ++i) {
      auto& [at, value] = largest[piece.parameter->name];
      if (std::abs(piece.gradient.data()[i]) > std::abs(value)) {
        at = piece.begin + i;
        value = static_cast<double>(piece.gradient.data()[i]);
      }
    }
  for (const auto& group : module.groups())
    for (const Parameter& parameter : group.parameters())
      for (int owner = 0; owner < communicator.size(); ++owner) {
        std::pair<std::int64_t, double> moved{-1, 0};
        if (owner == communicator.rank() && largest.contains(parameter.name)) moved = largest.at(parameter.name);
        comm::broadcast(communicator, std::as_writable_bytes(std::span(&moved, 1)), owner, {"test"});
        if (moved.first < 0) continue;
        const auto at_distance = [&](float h) {
          std::vector<std::pair<float*, float>> before;
          for (const auto& piece : module.shards())
            if (piece.parameter->name == parameter.name && moved.first >= piece.begin &&
                moved.first < piece.begin + piece.main.numel()) {
              float* const value = piece.main.data() + (moved.first - piece.begin);
              before.emplace_back(value, *value);
              *value += h;
            }
          const double found = loss();
          for (const auto& [value, old] : before) *value = old;
          return found;
        };
        constexpr float h = 1e-2f;
        expect(parameter.name, moved.second, (at_distance(h) - at_distance(-h)) / (2 * static_cast<double>(h)));
      }
}

}  // namespace net
}  // namespace fsdp::test
