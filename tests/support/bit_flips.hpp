// SPDX-License-Identifier: Apache-2.0
/// @file
/// Flips one bit in a rank's data once, as defective hardware does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include <tessera/fsdp/module/any_group.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>

#include <support/stack_runner.hpp>

namespace fsdp::test {

/// Flips the bit that RunOptions::flip specifies in a module.
template <class Types>
class BitFlips {
 public:
  /// The arguments must outlive this object. `next`: another observer, called first.
  BitFlips(ModuleMemory<Types>& module, const optim::ShardedStates<Types>& optimizer, const std::optional<Flip>& flip,
           const Observer& next)
      : module_(module), optimizer_(optimizer), next_(next) {
    if (flip && flip->rank == module.communicator().rank()) flip_ = &*flip;
  }

  /// The observer to pass to an Executor.
  Observer observer() { return {.before = before, .after = after, .state = this}; }

  /// Begins a step, counted from 1. Flips a weight or state at rest if that is due before this step.
  void begin_step(std::int64_t step) {
    step_ = step;
    if (!due()) return;
    for (std::size_t i = 0; i < module_.shards().size(); ++i) {
      const auto& piece = module_.shards()[i];
      if (piece.count() == 0 || !piece.trainable) continue;
      if (flip_->what == Flip::What::main) return flip(piece.main.data(), piece.main.numel());
      if (flip_->what == Flip::What::model)
        return with_view(piece.model, [&](const auto& model) { flip(model.data(), model.numel()); });
      if (flip_->what == Flip::What::state && !optimizer_.states(i).empty())
        return flip(optimizer_.states(i).front().bytes().data(), optimizer_.states(i).front().bytes().numel());
    }
  }

 private:
  using Action = sharding::Action;

  bool due() const { return flip_ != nullptr && flip_->step == step_; }

  static void before(void* self, const sharding::Task& task) {
    BitFlips& own = *static_cast<BitFlips*>(self);
    if (own.next_.before != nullptr) own.next_.before(own.next_.state, task);
    if (own.due() && task.micro_batch == 0) own.at_task(task);
  }
  static void after(void* self, const sharding::Task& task) {
    BitFlips& own = *static_cast<BitFlips*>(self);
    if (own.next_.after != nullptr) own.next_.after(own.next_.state, task);
  }

  void at_task(const sharding::Task& task) {
    if (flip_->what == Flip::What::gradient && task.action == Action::reduce) {
      with_group(module_.groups()[static_cast<std::size_t>(task.index)], [&](const auto& group) {
        const auto gradient = group.gradient(0);
        this->flip(gradient.tensor.data(), gradient.tensor.numel());
      });
    } else if (flip_->what == Flip::What::gathered && task.action == Action::forward && task.index == 1) {
      with_group(module_.groups()[static_cast<std::size_t>(module_.references(1).front().group)], [&](auto& group) {
        group.wait_for_weights(module_.stream());
        module_.synchronize();
        const auto weight = group.weight(0);
        this->flip(const_cast<typename std::remove_cvref_t<decltype(group)>::Compute*>(weight.data()), weight.numel());
      });
    }
  }

  template <class T>
  void flip(T* data, std::int64_t count) {
    auto* const bytes = reinterpret_cast<unsigned char*>(data + flip_->element % count);
    const std::size_t bit = static_cast<std::size_t>(flip_->bit) % (8 * sizeof(T));
    bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1u << (bit % 8)));
    flip_ = nullptr;
  }

  ModuleMemory<Types>& module_;
  const optim::ShardedStates<Types>& optimizer_;
  Observer next_;
  const Flip* flip_ = nullptr;  ///< null once the bit is flipped, and on other ranks
  std::int64_t step_ = 0;
};

}  // namespace fsdp::test
