// SPDX-License-Identifier: Apache-2.0
// The plain loop without the library: it trains unsharded tensors on one thread and adds the gradients of pieces of a
// batch in the same order as ranks and micro-batches. It includes nothing of Tessera and implements the documented
// order of sums:
//  - each rank adds its micro-batches in place, unless it reduces them one by one;
//  - a reduction adds the ranks of a group one after the other to the sum of earlier micro-batches;
//  - then the sums of the groups are added in order;
//  - the loss is the sum over ranks, in their order, of each rank's sum.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <Eigen/Core>

namespace plain {

/// When the gradients of ranks are added.
enum class Reduce { every_micro_batch, last_micro_batch };

/// How AdamW rounds a multiply-add: after each operation, or once, as with fused multiply-add instructions.
enum class Rounding { each, fused };

struct Settings {
  int ranks = 1;
  double lr = 0.01, clip = 1, weight_decay = 0.01;
  Rounding rounding = Rounding::each;
};

/// The order in which the gradients of a tensor are added.
struct Sums {
  Reduce reduce = Reduce::every_micro_batch;
  int ranks_per_group = 0;  ///< 0: all ranks form one group
  friend auto operator<=>(const Sums&, const Sums&) = default;
};

/// A tensor of the network. Units refer to it by its index.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  bool decays = false;
  bool trained = true;
  std::vector<float> values;  ///< initial values
  Sums sums = {};
};

template <class S>
struct View {
  S* memory = nullptr;
  const std::vector<std::int64_t>* shape = nullptr;

  S* data() const { return memory; }
  int rank() const { return static_cast<int>(shape->size()); }
  std::int64_t extent(int axis) const { return (*shape)[static_cast<std::size_t>(axis)]; }
};

enum class Next { overwrites, adds };

template <class S>
struct Gradient {
  View<S> tensor;
  bool* written = nullptr;

  bool wanted() const { return written != nullptr; }
  Next next() const {
    const Next next = *written ? Next::adds : Next::overwrites;
    *written = true;
    return next;
  }
};

/// One step of AdamW (Loshchilov and Hutter 2019), in the order of operations that the library's kernels have.
template <class S>
class AdamW {
 public:
  AdamW(const Settings& settings, std::int64_t taken, double gradient_scale, bool decays)
      : rounding_(settings.rounding),
        gradient_scale_(static_cast<S>(gradient_scale)),
        root_scale_(
            static_cast<S>(1 / std::sqrt(1 - std::pow(static_cast<double>(beta2_), static_cast<double>(taken))))),
        decay_(decays ? static_cast<S>(1 - static_cast<double>(static_cast<S>(settings.lr)) *
                                               static_cast<double>(static_cast<S>(settings.weight_decay)))
                      : S(1)),
        step_size_(
            static_cast<S>(settings.lr / (1 - std::pow(static_cast<double>(beta1_), static_cast<double>(taken))))) {}

  void step(S& weight, S& first, S& second, S sum) const {
    const S g = sum * gradient_scale_;
    first = multiply_add(first, beta1_, g * (1 - beta1_));
    second = multiply_add(second, beta2_, g * g * (1 - beta2_));
    const S denominator = multiply_add(std::sqrt(second), root_scale_, S(1e-8));
    weight = multiply_add(weight, decay_, -(first / denominator * step_size_));
  }

 private:
  S multiply_add(S a, S b, S c) const { return rounding_ == Rounding::fused ? std::fma(a, b, c) : a * b + c; }

  static constexpr S beta1_ = S(0.9), beta2_ = S(0.95);
  Rounding rounding_;
  S gradient_scale_, root_scale_, decay_, step_size_;
};

/// Unsharded tensors and their optimizer state.
template <class S>
class Loop {
  using Values = Eigen::Matrix<S, Eigen::Dynamic, 1>;

  struct Tensor {
    Values weight, gradient, sum, first, second;
    std::vector<Values> groups;  ///< the sum of each group over micro-batches
    bool written = false;

    void take(int micro_batch, int rank, int group_size) {
      if (!written) gradient.setZero();
      const auto group = static_cast<std::size_t>(rank / group_size);
      groups.resize(std::max(groups.size(), group + 1));
      if (micro_batch == 0 && rank % group_size == 0)
        groups[group] = gradient;
      else
        groups[group] += gradient;
    }
    void reduce() {
      sum = groups.front();
      for (std::size_t group = 1; group < groups.size(); ++group) sum += groups[group];
    }
  };

 public:
  /// `units`: for each unit, the indices of its parameters.
  Loop(std::vector<Parameter> parameters, std::vector<std::vector<int>> units, const Settings& settings)
      : parameters_(std::move(parameters)), units_(std::move(units)), settings_(settings) {
    for (const Parameter& parameter : parameters_) {
      Tensor& tensor = tensors_.emplace_back();
      const auto count = static_cast<Eigen::Index>(parameter.values.size());
      tensor.weight = Eigen::Map<const Eigen::VectorXf>(parameter.values.data(), count).template cast<S>();
      for (Values* values : {&tensor.gradient, &tensor.sum, &tensor.first, &tensor.second}) values->setZero(count);
    }
  }

  class Use {
   public:
    Use(Loop& loop, int unit) : loop_(loop), unit_(loop.units_[static_cast<std::size_t>(unit)]) {}
    View<const S> weight(std::size_t index) const { return {tensor(index).weight.data(), &parameter(index).shape}; }
    Gradient<S> gradient(std::size_t index) const {
      Tensor& own = tensor(index);
      return {{own.gradient.data(), &parameter(index).shape}, parameter(index).trained ? &own.written : nullptr};
    }

   private:
    const Parameter& parameter(std::size_t index) const {
      return loop_.parameters_[static_cast<std::size_t>(unit_[index])];
    }
    Tensor& tensor(std::size_t index) const { return loop_.tensors_[static_cast<std::size_t>(unit_[index])]; }

    Loop& loop_;
    const std::vector<int>& unit_;
  };

  /// A pass over unsharded tensors.
  struct Pass {
    Loop& loop;
    Use forward(int unit) { return {loop, unit}; }
    Use backward(int unit) { return {loop, unit}; }
    Use both(int unit) { return {loop, unit}; }
  };

  /// Makes a step. compute(pass, piece) runs forward and backward of a piece of the batch and returns its loss; rank r
  /// has pieces r * micro_batches + m. Returns the sum of the losses.
  template <class Compute>
  double step(int micro_batches, double lr, Compute compute) {
    settings_.lr = lr;
    std::vector<double> losses;
    for (const Reduce reduce : {Reduce::last_micro_batch, Reduce::every_micro_batch})
      losses = compute_all(reduce, micro_batches, compute);
    for (Tensor& tensor : tensors_) tensor.reduce();
    update();
    return std::accumulate(losses.begin(), losses.end(), 0.0);
  }

  /// The norm of the last step's gradients before clipping.
  double norm() const { return norm_; }
  std::vector<double> weights(std::size_t parameter) const {
    const Values& values = tensors_[parameter].weight;
    return {values.begin(), values.end()};
  }

 private:
  /// Computes all pieces of a step, and adds the gradients of the tensors that are reduced in this way. Returns the
  /// losses of the ranks.
  template <class Compute>
  std::vector<double> compute_all(Reduce reduce, int micro_batches, Compute compute) {
    const bool one_by_one = reduce == Reduce::every_micro_batch && settings_.ranks > 1;
    std::vector<double> losses(static_cast<std::size_t>(settings_.ranks));
    for (int m = 0; m < (one_by_one ? micro_batches : 1); ++m)
      for (int rank = 0; rank < settings_.ranks; ++rank) {
        for (Tensor& tensor : tensors_) tensor.written = false;
        for (int next = m; next < (one_by_one ? m + 1 : micro_batches); ++next) {
          Pass pass{*this};
          losses[static_cast<std::size_t>(rank)] += compute(pass, rank * micro_batches + next);
        }
        for (std::size_t i = 0; i < tensors_.size(); ++i)
          if (const Sums& sums = parameters_[i].sums; sums.reduce == reduce)
            tensors_[i].take(m, rank, sums.ranks_per_group == 0 ? settings_.ranks : sums.ranks_per_group);
      }
    return losses;
  }

  void update() {
    double squares = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (parameters_[i].trained) squares += tensors_[i].sum.template cast<double>().squaredNorm();
    norm_ = std::sqrt(squares);
    const double scale = std::min(1.0, settings_.clip / (norm_ + 1e-6));
    ++taken_;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (!parameters_[i].trained) continue;
      const AdamW<S> rule(settings_, taken_, scale, parameters_[i].decays);
      Tensor& tensor = tensors_[i];
      for (Eigen::Index at = 0; at < tensor.sum.size(); ++at)
        rule.step(tensor.weight[at], tensor.first[at], tensor.second[at], tensor.sum[at]);
    }
  }

  std::vector<Parameter> parameters_;
  std::vector<std::vector<int>> units_;
  Settings settings_;
  std::vector<Tensor> tensors_;
  std::int64_t taken_ = 0;
  double norm_ = 0;
};

}  // namespace plain
