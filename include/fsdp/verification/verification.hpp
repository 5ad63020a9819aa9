// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds ranks with silent data corruption in computation or memory: each rank recomputes one piece of its neighbour,
/// and all ranks compare the digests.
///
/// Finds differences in the verified pieces, down to each group's gradient before its reduction, and changes of weights
/// and optimizer states between the step that wrote them and the verification. Does not find transient errors in other
/// steps or in the optimizer's arithmetic. Source: redundant execution as in Dixit et al. 2021, "Silent data
/// corruptions at scale".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/execution/step_hooks.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/verification/step_digests.hpp>
#include <tessera/fsdp/verification/step_watch.hpp>

namespace fsdp {

namespace detail {

/// The digests of one rank's computation of a piece, either the original one or a repetition.
struct Computed {
  int rank = 0;
  std::span<const std::uint64_t> digests;
};

/// Returns the number of the first digest in the order of computation that differs: forward of all units, backward in
/// reverse, then the groups' gradients. Returns nullopt if the digests are equal.
std::optional<std::int64_t> first_difference(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b,
                                             std::int64_t units);

/// Returns the ranks to blame for a piece whose computations differ: the ranks with minority digests, or all
/// participating ranks if there is no majority.
std::vector<int> suspects(const std::vector<Computed>& computations);

/// Returns a description such as "rank 3 on node7, or rank 4 on node8".
std::string ranks_in_words(const std::vector<int>& ranks, const std::vector<std::string>& hosts);

/// Returns the hosts of all ranks. Collective.
std::vector<std::string> hosts_of(const comm::Ranks& ranks);

}  // namespace detail

/// Verifies the training steps of an Executor whose module is planned for it (StepSize::verifies).
template <class Model>
class Verification {
 public:
  using Module = ShardedModel<Model>;
  using Stack = typename Module::Stack;
  using Batch = typename Model::Batch;
  /// Returns a piece of the step by its number. The batch must stay valid until the verification ends. An argument
  /// alone: it does not own the function.
  using BatchOf = FunctionRef<Batch(int piece)>;

  /// The arguments must outlive it; `watch` watches the executor. Throws InputError unless the strategy cuts a step
  /// into pieces.
  Verification(Module& module, Executor<Model>& executor, StepWatch<Model>& watch)
      : module_(module), executor_(executor), watch_(watch) {
    require<InputError>(module.step_pieces() > 0,
                        "verification: each rank computes a piece of another one again, and this ",
                        "strategy does not cut a step into pieces; take Reproducible (--sharding fsdp2:pieces=V)");
    require<InputError>(module.sequence_group().size == 1,
                        "verification: a rank computes whole pieces of others, and here ", module.sequence_group().size,
                        " ranks share each sequence; leave one of them out (--verify-every, --sequence)");
  }

  /// Compares the first pieces of a step. Call it between the pass and the optimizer's update. `scale`: the scale of
  /// the pass. Throws CorruptionError on all ranks, which reports the rank and the computation that was wrong.
  /// Collective.
  void verify(std::int64_t step, float scale, const BatchOf& batch_of) {
    const int ranks = module_.communicator().size();
    const auto checked_by = [&](int rank) { return (rank + 1) % ranks; };  // each rank checks its neighbour's piece
    const DigestTable first = watch_.first().gather();
    const DigestTable again = repeat(scale, batch_of, checked_by);
    for (int rank = 0; rank < ranks; ++rank) {
      const int piece = checked_by(rank);
      if (piece >= module_.step_pieces()) continue;
      const auto at = detail::first_difference(first.of(piece), again.of(rank), units());
      if (at) blame(step, *at, scale, batch_of, {{piece, first.of(piece)}, {rank, again.of(rank)}}, piece);
    }
  }

 private:
  std::int64_t units() const { return std::ssize(module_.names().units); }

  /// Recomputes on each rank the piece that `piece_of` returns. A rank computes nothing if that number is not below the
  /// number of pieces.
  template <class PieceOf>
  DigestTable repeat(float scale, const BatchOf& batch_of, const PieceOf& piece_of) {
    const int piece = piece_of(module_.communicator().rank());
    std::vector<Batch> batches;
    comm::together(module_.communicator(), "verification", [&] {  // a rank may be unable to read its data
      if (piece >= 0 && piece < module_.step_pieces()) batches.push_back(batch_of(piece));
    });
    executor_.repeat(executor_.upload(batches), scale);
    return watch_.repeated().gather();
  }

  /// Determines which of two ranks is wrong with the help of a third rank. With only two ranks, both compute the piece
  /// once more.
  [[noreturn]] void blame(std::int64_t step, std::int64_t at, float scale, const BatchOf& batch_of,
                          std::vector<detail::Computed> computations, int piece) {
    const int ranks = module_.communicator().size();
    const int third = (piece + 1) % ranks;
    const auto takes_part = [&](int rank) {
      return ranks > 2 ? rank == third : rank == computations[0].rank || rank == computations[1].rank;
    };
    const DigestTable once_more =
        repeat(scale, batch_of, [&](int rank) { return takes_part(rank) ? piece : module_.step_pieces(); });
    for (int rank = 0; rank < ranks; ++rank)
      if (takes_part(rank)) computations.push_back({rank, once_more.of(rank)});
    throw CorruptionError(message(
        "verification: ",
        detail::ranks_in_words(detail::suspects(computations), detail::hosts_of(module_.communicator())), " computed ",
        watch_.first().in_words(at), " of piece ", piece, " of step ", step,
        " otherwise than another computation of the same; nothing was saved since. Take the machine out and resume"));
  }

  Module& module_;
  Executor<Model>& executor_;
  StepWatch<Model>& watch_;
};

namespace detail {

/// See RestingDigests. `Module`: a MemoryOf; `States`: the base class of its optimizer.
template <class Module, class States>
class RestingDigestsOf {
 public:
  using Compute = typename Module::Compute;

  /// Both arguments must outlive it.
  RestingDigestsOf(Module& module, const States& optimizer)
      : module_(module), optimizer_(optimizer), sums_(module, std::ssize(module.groups()) * kinds) {}

  /// Stores the current digests. Call it when a step has written the state. Collective.
  void keep() { kept_ = digests(); }
  /// Whether `keep` was called.
  bool kept() const { return kept_.has_value(); }
  /// Compares the current digests with the stored ones, if there are any. Call it as late as possible before the next
  /// step writes the state. `step`: the step that wrote the state. Throws CorruptionError on all ranks. Collective.
  void compare(std::int64_t step) {
    if (!kept_) return;
    const DigestTable now = digests();
    for (int rank = 0; rank < module_.communicator().size(); ++rank) {
      const auto before = kept_->of(rank), after = now.of(rank);
      const auto changed = std::ranges::mismatch(before, after).in1;
      if (changed == before.end()) continue;
      throw CorruptionError(message("verification: on ", ranks_in_words({rank}, hosts_of(module_.communicator())), ", ",
                                    what(static_cast<std::size_t>(changed - before.begin())), " changed after step ",
                                    step,
                                    " had written them; nothing was saved since. Take the machine out and resume"));
    }
  }

 private:
  static constexpr std::int64_t kinds = 3;  ///< main weights, model weights, optimizer states

  DigestTable digests() {
    sums_.begin();
    for (std::size_t i = 0; i < module_.shards().size(); ++i) {
      const auto& piece = module_.shards()[i];
      const std::int64_t at = piece.group * kinds;
      const std::uint64_t key = device::digest_key(piece.parameter->name);
      if (piece.has_main()) sums_.template add<float>(at, Tensor<const float>(piece.main), key, piece.begin);
      with_view(piece.model, [&]<class T>(const Tensor<T>& model) {
        sums_.template add<T>(at + 1, Tensor<const T>(model), key, piece.begin);
      });
      std::uint64_t state = 0;
      for (const optim::State& values : optimizer_.states(i))
        optim::with_words(values, piece.begin, [&]<class T>(Tensor<const T> words, std::int64_t begin) {
          sums_.template add<T>(at + 2, words, key + 2 * ++state, begin);
        });
    }
    return sums_.gather();
  }
  std::string what(std::size_t at) const {
    constexpr const char* names[] = {"main weights", "model weights", "optimizer states"};
    const std::size_t group = at / kinds;
    return message("the ", names[at % kinds], " of ", module_.names().groups[group]);
  }

  Module& module_;
  const States& optimizer_;
  DigestSums<Module> sums_;  // [groups * kinds]
  std::optional<DigestTable> kept_;
};

}  // namespace detail

/// Stores digests of the state that must not change between steps: main weights, model weights and optimizer states of
/// this rank.
template <class Model, class Optimizer>
using RestingDigests =
    detail::RestingDigestsOf<MemoryOf<Model>, optim::ShardedStates<TypesOf<typename Optimizer::Stack>>>;

/// For a Training whose steps are digested or verified: its dry run plans the memory of StepWatch, Verification and
/// RestingDigests.
struct WatchedSteps {
  /// What watches the training of a dry run.
  template <class Model>
  class Of {
   public:
    /// See UnwatchedSteps.
    /// @{
    Of(ShardedModel<Model>& module, Executor<Model>& executor, bool has_pieces) : module_(module), executor_(executor) {
      check_verifies(module.size(), has_pieces);
      if (module.size().digests || module.size().verifies) watch_.emplace(module, executor);
    }
    template <class ForEachLoad, class Optimizer>
    void verify(const ForEachLoad& for_each_load, const Optimizer& optimizer) {
      if constexpr (StepWatch<Model>::may_verify) {
        if (!module_.size().verifies) return;
        for_each_load([&](const typename Model::Batch& one) {  // in addition to the step's own micro-batches
          const std::vector step(static_cast<std::size_t>(module_.size().micro_batches), one);
          const auto held = executor_.upload(step);
          executor_.repeat(executor_.upload({&one, 1}), 1.0f);
        });
        auto resting = std::make_shared<RestingDigests<Model, Optimizer>>(module_, optimizer);
        resting->keep();
        resting_ = std::move(resting);
      }
    }
    /// @}

   private:
    ShardedModel<Model>& module_;
    Executor<Model>& executor_;
    std::optional<StepWatch<Model>> watch_;
    std::shared_ptr<void> resting_;
  };
};

}  // namespace fsdp
