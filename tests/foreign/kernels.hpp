// SPDX-License-Identifier: Apache-2.0
/// @file
/// The computations of a network as queue operations, which run when the queue reaches them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

#include "any_pass.hpp"
#include "networks.hpp"

namespace fsdp::foreign {

/// The tensors that a computation reads and writes. Whether it overwrites or accumulates was decided when its operation
/// was enqueued.
struct Operands {
  sharding::Task task;
  std::vector<Tensor<const float>> weights = {};
  std::vector<Tensor<float>> gradients = {};
  std::deque<bool> adds = {};  ///< for each gradient, whether it was written before
};

/// Runs the steps of a network, from step 0, on a separate thread. Each computation begins and ends with its operation;
/// the local variables that the network keeps between computations are its activations.
class Kernels {
 public:
  Kernels(const Network& network, int rank, int ranks, int micro_batches)
      : thread_([this, network, rank, ranks, micro_batches] {
          AnyPass pass{.enter = [this](sharding::Action action, int unit) { return enter(action, unit); }};
          try {
            for (int step = 0;; ++step)
              for (int m = 0; m < micro_batches; ++m)
                give_loss(network.compute(pass, step, rank * micro_batches + m, ranks * micro_batches));
          } catch (const Over&) {
          } catch (...) {
            end(std::current_exception());
          }
        }) {}
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  ~Kernels() {
    end({});
    thread_.join();
  }

  // Called by operations, on the thread of their queue.

  /// Runs the network's next computation.
  void compute(const Operands& operands) {
    std::unique_lock lock(mutex_);
    operands_ = &operands;
    changed_.notify_all();
    wait(lock, [this] { return operands_ == nullptr; });
  }
  /// Waits for the end of a micro-batch, and returns its loss.
  double loss() {
    std::unique_lock lock(mutex_);
    wait(lock, [this] { return loss_.has_value(); });
    changed_.notify_all();
    return *std::exchange(loss_, std::nullopt);
  }

 private:
  struct Over {};  ///< thrown in the network when no more operations will come

  class Computation : public HeldUse {
   public:
    explicit Computation(Kernels& kernels) : kernels_(kernels), written_(kernels.operands_->adds) {}
    Tensor<const float> weight(std::size_t index) override { return kernels_.operands_->weights.at(index); }
    GradientView<float> gradient(std::size_t index) override {
      return {kernels_.operands_->gradients.at(index), &written_.at(index)};
    }
    void done() override {
      const std::lock_guard lock(kernels_.mutex_);
      kernels_.operands_ = nullptr;
      kernels_.changed_.notify_all();
    }

   private:
    Kernels& kernels_;
    std::deque<bool> written_;
  };

  template <class Holds>
  void wait(std::unique_lock<std::mutex>& lock, Holds holds) {
    changed_.wait(lock, [&] { return over_ || holds(); });
    if (failure_) std::rethrow_exception(failure_);
    if (over_) throw Over();
  }
  std::unique_ptr<HeldUse> enter(sharding::Action action, int unit) {
    std::unique_lock lock(mutex_);
    wait(lock, [this] { return operands_ != nullptr; });
    require<LogicError>(operands_->task.action == action && operands_->task.index == unit,
                        "the network makes another computation than its queue");
    return std::make_unique<Computation>(*this);
  }
  void give_loss(double loss) {
    std::unique_lock lock(mutex_);
    loss_ = loss;
    changed_.notify_all();
    wait(lock, [this] { return !loss_.has_value(); });
  }
  void end(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    over_ = true;
    failure_ = std::move(failure);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const Operands* operands_ = nullptr;  ///< operands of the running operation
  std::optional<double> loss_;          ///< loss of the micro-batch that has ended
  bool over_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace fsdp::foreign
