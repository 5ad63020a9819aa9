// SPDX-License-Identifier: Apache-2.0
/// @file
/// An optimizer applied to a sharded module, and its unsharded states for inspection. Also the modules that are
/// compiled into the library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/comm/simulated.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/module/group_tasks.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/module/stack_mesh.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/optim/state.hpp>
#include <tessera/fsdp/optim/step_control.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp::optim {

/// Gives a compile error for an optimizer that needs whole tensors with a strategy that cuts tensors.
template <class Optimizer, class Sharding>
consteval bool check_whole_tensors() {
  static_assert(
      !needs_whole_tensors<Optimizer> || tensors_whole<Sharding>,
      "fsdp: this optimizer works on whole matrices, and the strategy cuts them over ranks; take a strategy "
      "that keeps them whole: WithLayout<..., buffer::Blocks>, or buffer::Owned of one whose optimizer is not "
      "sharded across groups, or Replicated");
  return true;
}

/// The states of an optimizer and the decisions of its steps: the part of ShardedOptimizer that depends only on `Types`
/// (ModuleTypes). States are stored next to the main weights: on the device, or in the offload space.
template <class Types>
class ShardedStates {
 public:
  using Module = ModuleMemory<Types>;
  using Device = typename Module::Device;
  using Shard = typename Module::ParameterShard;
  using Compute = typename Module::Compute;

  /// Return the decisions of the steps: skipped or not, loss, norm, learning rate.
  /// @{
  StepControl<Types>& control() { return control_; }
  const StepControl<Types>& control() const { return control_; }
  /// @}
  /// Returns the number of steps enqueued so far, skipped steps included.
  std::int64_t steps() const { return control_.steps(); }
  /// Returns the states of the module's shard number `shard`, in the optimizer's order. Each has the shard's elements,
  /// in the parameter's shape if the shard is the whole parameter.
  std::span<const State> states(std::size_t shard) const { return views_[shard]; }

 protected:
  using Space = typename Module::Group::MainSpace;
  using Block = device::Block<Space>;
  static constexpr std::int64_t largest_chunk = 1 << 18;  // elements: 1 MiB of gradients in flight at a time

  /// `module` must outlive it.
  ShardedStates(Module& module, const device::StepRules& rules);
  ShardedStates(ShardedStates&&) noexcept = default;
  ShardedStates& operator=(ShardedStates&&) noexcept = default;
  ~ShardedStates();

  /// Allocates one block per state, for `pieces`, which are the module's shards.
  void place_states(const std::vector<StatePiece>& pieces);
  /// If main weights are offloaded, allocates memory for the chunks in which shards are stepped.
  void stage(const StepWork& work);
  /// Returns the number of elements of a shard that are then stepped at a time: whole blocks of the optimizer.
  static std::int64_t chunk_of(const Shard& shard, const StepWork& work);
  /// Returns the parameter's shape if the shard is the whole parameter, else [elements of the shard].
  static Shape shape_of(const Shard& shard);

  Module* module_;
  StepControl<Types> control_;
  std::vector<Block> states_;              // [states]
  std::vector<std::vector<State>> views_;  // [pieces][states of the shard]
  Block staging_;                          ///< with offloading: a chunk of gradients, then of updated weights
  std::int64_t chunk_ = 0;

 private:
  device::Ledger& ledger() { return Module::Group::offloaded ? module_->offload_ledger() : module_->ledger(); }
};

template <class Types>
ShardedStates<Types>::ShardedStates(Module& module, const device::StepRules& rules)
    : module_(&module), control_(module, rules) {}

template <class Types>
ShardedStates<Types>::~ShardedStates() = default;

template <class Types>
void ShardedStates<Types>::place_states(const std::vector<StatePiece>& pieces) {
  const auto& shards = module_->shards();
  views_.resize(shards.size());
  std::size_t count = 0;
  for (const StatePiece& piece : pieces) count = std::max(count, piece.states.size());
  for (std::size_t state = 0; state < count; ++state) {
    const StatePlaces places = places_of(pieces, state, module_->trained_size());
    if constexpr (Module::Group::offloaded)
      states_.push_back(Block(ledger(), device::MemoryKind::optimizer, places.bytes));
    else
      states_.push_back(module_->block_of(device::MemoryKind::optimizer, places.bytes));
    std::byte* const block = states_.back().data();
    for (std::size_t i = 0; i < shards.size(); ++i)
      if (pieces[i].states.size() > state)
        views_[i].push_back({block + places.starts[i], shape_of(shards[i]), *pieces[i].states[state].format});
  }
}

template <class Types>
std::int64_t ShardedStates<Types>::chunk_of(const Shard& shard, const StepWork& work) {
  const std::int64_t block = std::max(work.block_of(*shard.parameter), std::int64_t{1});
  return std::min(shard.main.numel(), std::max(largest_chunk / block, std::int64_t{1}) * block);
}

template <class Types>
void ShardedStates<Types>::stage(const StepWork& work) {
  if constexpr (Module::Group::offloaded) {
    for (const Shard& shard : module_->shards())
      if (shard.trainable) chunk_ = std::max(chunk_, chunk_of(shard, work));
    chunk_ = round_up(chunk_, device::alignment);
    staging_ = {ledger(), device::MemoryKind::optimizer, chunk_ * std::int64_t{sizeof(float) + sizeof(Compute)}};
  }
}

template <class Types>
Shape ShardedStates<Types>::shape_of(const Shard& shard) {
  const Shape& whole = shard.parameter->shape;
  return shard.main.numel() == whole.numel() ? whole : shard.main.shape();
}

/// An optimizer that steps this rank's shards of a module, and its states.
template <class StackT, class OptimizerT = RunTimeOptimizer>
class ShardedOptimizer : public ShardedStates<TypesOf<StackT>> {
  using States = ShardedStates<TypesOf<StackT>>;
  using States::chunk_, States::control_, States::module_, States::shape_of, States::staging_, States::views_;

 public:
  using Stack = StackT;
  using Module = ShardedModule<Stack>;
  using Optimizer = OptimizerT;
  using Device = typename Module::Device;
  using Shard = typename Module::ParameterShard;
  using Compute = typename Module::Compute;

  static_assert(check_optimizer<Optimizer>());
  static_assert(Updates<Optimizer, typename Device::Stream, Compute>,
                "fsdp: an optimizer lacks the update of this stack's weights; give it template <class Stream, class "
                "Compute> void update(Stream&, const optim::Update<Compute>&, Tensor<const device::StepDecision>) "
                "const");
  static_assert(check_whole_tensors<Optimizer, typename Stack::Sharding>());

  /// `module` must outlive it. Throws InputError for an invalid constant, or if an optimizer that was selected at run
  /// time needs whole tensors and the strategy cuts them.
  ShardedOptimizer(Module& module, const Optimizer& optimizer, const device::StepRules& rules = {})
      : States(module, rules), optimizer_(optimizer), work_(step_work(optimizer)) {
    if constexpr (requires { optimizer_.validate(); }) optimizer_.validate();
    require_blocks(optimizer_.name(), module, work_);
    if constexpr (!reads_decay<Optimizer>) require_no_decays(optimizer_.name(), module.group_list());
    std::vector<StatePiece> pieces;
    for (const Shard& shard : module.shards()) {
      require_state_names(optimizer_.name(), *shard.parameter, specs(shard));
      pieces.push_back({shard.resting, shard.main.numel(), specs(shard), shard.trainable});
    }
    this->place_states(pieces);
    this->stage(work_);
  }

  /// Returns the optimizer with its constants.
  const Optimizer& optimizer() const { return optimizer_; }
  /// Enqueues one optimizer step on the module's gradients. `loss`: this rank's losses on the device, one for each
  /// micro-batch or one for the whole step (Executor::loss).
  void step(Tensor<const double> loss, const device::StepInputs& inputs) {
    control_.begin(inputs);
    update(loss);
    control_.end();
  }
  /// Enqueues the part of `step` between begin and end, which is the same work for the device in every step.
  void update(Tensor<const double> loss) {
    control_.decide(loss);
    for (std::size_t i = 0; const Shard& shard : module_->shards()) {
      const std::span<const State> states = views_[i++];
      if (!module_->is_stepped(shard)) continue;
      if constexpr (Module::Group::offloaded)
        update_offloaded(shard, states);
      else
        update(shard, shard.main, states, shard.gradient, copy_of(shard), 0);
    }
  }

  /// Returns names and formats of a shard's states; empty if the shard is frozen.
  std::span<const StateSpec> specs(const Shard& shard) const {
    return shard.trainable ? std::span<const StateSpec>(optimizer_.states(*shard.parameter))
                           : std::span<const StateSpec>();
  }

 private:
  using Space = typename Module::Group::MainSpace;

  /// Returns the rounded copy of a shard's main weights; empty if main weights and model weights are the same memory.
  static Tensor<Compute> copy_of(const Shard& shard) {
    Tensor<Compute> copy;
    with_view(shard.model, [&]<class T>(const Tensor<T>& model) {
      if constexpr (std::is_same_v<T, Compute> && !Module::Group::one_copy) copy = model;
    });
    return copy;
  }
  /// `begin`: index of the first element of `main` in the shard.
  void update(const Shard& shard, Tensor<float> main, std::span<const State> states, Tensor<const float> gradient,
              Tensor<Compute> model, std::int64_t begin) {
    const Shape shape = main.numel() == shard.main.numel() ? shape_of(shard) : main.shape();
    optimizer_.update(module_->stream(),
                      Update<Compute>{.parameter = *shard.parameter,
                                      .main = {main.data(), shape},
                                      .states = states,
                                      .gradient = {gradient.data(), shape},
                                      .model = model.numel() == 0 ? model : Tensor<Compute>(model.data(), shape),
                                      .first = shard.begin + begin},
                      control_.on_device(shard));
  }

  /// Steps an offloaded shard chunk by chunk: copies gradients to host memory, updates there, copies the new weights
  /// back.
  void update_offloaded(const Shard& shard, std::span<const State> states) {
    auto& stream = module_->stream();
    float* const gradients = reinterpret_cast<float*>(staging_.data());
    Compute* const weights = reinterpret_cast<Compute*>(gradients + chunk_);
    const std::int64_t count = shard.main.numel(), chunk = this->chunk_of(shard, work_);
    std::vector<State> cut_states(states.size());
    for (std::int64_t begin = 0; begin < count; begin += chunk) {
      const std::int64_t elements = std::min(chunk, count - begin);
      const Shape part = elements == count ? shape_of(shard) : Shape{elements};
      const auto cut = [&]<class T>(Tensor<T> all) { return Tensor<T>(all.data() + begin, part); };
      std::ranges::transform(states, cut_states.begin(), [&](const State& all) { return all.part(begin, part); });
      const Tensor<float> gradient(gradients, part);
      const Tensor<Compute> stepped(weights, part);
      Space::template transfer<float>(stream, stream, cut(shard.gradient), gradient);
      with_view(shard.model, [&]<class T>(const Tensor<T>& model) {
        constexpr bool rounds = !std::is_same_v<T, float>;
        update(shard, cut(shard.main), cut_states, gradient, rounds ? stepped : Tensor<Compute>(), begin);
        if constexpr (rounds)
          Space::template transfer<T>(stream, stream, stepped, cut(model));
        else
          Space::template transfer<T>(stream, stream, cut(shard.main), cut(model));
      });
    }
  }

  Optimizer optimizer_;
  StepWork work_;  // what layouts use of it
};

/// Calls f(parameter, state, tensor) on every rank with each state of the trained parameters whose names match one of
/// `names`. Tensors are whole, decoded and in host memory; see with_full_values. After a write, blocks with a changed
/// value are encoded again, and no others, so that the bytes do not depend on ranks. Collective. Throws InputError for
/// a pattern that matches nothing.
template <class Stack, class Optimizer, class F, WeightAccess As = Access::Constant<AccessKind::read>>
void with_full_states(ShardedModule<Stack>& module, ShardedOptimizer<Stack, Optimizer>& optimizer,
                      const std::vector<std::string>& names, F f, As access = {}, int source = every_rank) {
  using Space = typename ShardedModule<Stack>::Group::MainSpace;
  using Values = Tensor<Accessed<As, float>>;
  fsdp::detail::groups_with(module, names);
  const auto states_of = [&](const Parameter& parameter) {
    return std::span<const StateSpec>(optimizer.optimizer().states(parameter));
  };
  for (const GroupTensors* const group : module.group_list())
    for (const Parameter& parameter : group->parameters()) {
      if (!matches_any(names, parameter.name)) continue;
      const std::span<const StateSpec> states = states_of(parameter);
      for (std::size_t state = 0; state < states.size(); ++state) {
        const auto read = [&](std::size_t piece, Tensor<float> values) {
          const State& own = optimizer.states(piece)[state];
          own.format().decode(device::OnHost<Space, const std::byte>(module.stream(), own.bytes()).values(), values);
        };
        const auto write = [&](std::size_t piece, Tensor<const float> values) {
          std::vector<float> before(static_cast<std::size_t>(values.numel()));
          read(piece, {before.data(), values.shape()});
          const State& own = optimizer.states(piece)[state];
          device::OnHost<Space, std::byte> host(module.stream(), own.bytes());
          encode_changed(own.format(), before.data(), values, host.values());
          host.write_back();
        };
        with_full_values(
            module, "with_full_states", {parameter.name}, read, write,
            [&](const Parameter& of, Values values) { f(of, states[state].name, values); }, access, source);
      }
    }
}

}  // namespace fsdp::optim

// Explicit instantiations, so that other objects need not contain them: for ranks that are threads of one process, on
// the CPU, and for dry runs for the CPU of stacks whose optimizer state is neither sharded across groups nor in host
// memory.
namespace fsdp {

/// The types of strategies on one axis of ranks, such as FullyShard<> and Zero2.
template <class Comm, class Precision>
using OneAxis =
    ModuleTypes<Comm, Precision, buffer::Replicate, typename Comm::Device, 1, /*by_value=*/false, WholeSequences>;

/// The types of dry runs.
template <class Precision>
using MetaTypes = TypesOf<detail::PlainMetaStack<device::Cpu, Precision>>;

}  // namespace fsdp

/// All parts of a module that do not depend on its strategy; `how` is `extern template` or `template`.
#define FSDP_MODULE_INSTANCES(how, ...)            \
  how class fsdp::StackMesh<__VA_ARGS__>;          \
  how class fsdp::ParameterGroup<__VA_ARGS__>;     \
  how class fsdp::ModuleMemory<__VA_ARGS__>;       \
  how class fsdp::GroupTasks<__VA_ARGS__>;         \
  how class fsdp::optim::StepControl<__VA_ARGS__>; \
  how class fsdp::optim::ShardedStates<__VA_ARGS__>;
/// The additional parts of a dry run's module.
#define FSDP_META_MODULES(how, Precision)                                                    \
  FSDP_MODULE_INSTANCES(how, fsdp::MetaTypes<Precision>)                                     \
  how class fsdp::ShardedModule<fsdp::detail::PlainMetaStack<fsdp::device::Cpu, Precision>>; \
  how class fsdp::Pass<fsdp::detail::PlainMetaStack<fsdp::device::Cpu, Precision>>;

FSDP_MODULE_INSTANCES(extern template, fsdp::OneAxis<fsdp::comm::Threads<>, fsdp::Fp32>)
FSDP_MODULE_INSTANCES(extern template, fsdp::OneAxis<fsdp::comm::Threads<>, fsdp::Bf16Mixed>)
FSDP_META_MODULES(extern template, fsdp::Fp32)
FSDP_META_MODULES(extern template, fsdp::Bf16Mixed)
