// SPDX-License-Identifier: Apache-2.0
/// @file
/// The concept of a model: a config, and units that compute a loss from a batch. All other code depends on this
/// concept only. A model is a class template over a stack, constructed from a Config and UnitOptions. It has the types
/// `Stack`, `Local`, `Config`, `Batch`, `Entry`, `Block`, `Head`, and `On<Other>`, the same model on another stack.
/// Its units are values: `entry()`, `block(i)` for i below `blocks()`, `head()`. Blocks may differ in values, and in
/// kind if Block is an nn::OneOf. Names and shapes of parameters come from the units alone (`units_of`); `prefix(i)`
/// precedes the names of block i. A model whose head has `logits` can generate. A model may have
/// `std::optional<std::string> ignored(name) const`: it returns the reason why the model does not use a stored tensor,
/// or nullopt if it uses the tensor; an empty reason gives no warning. A model may have `std::optional<std::string>
/// copied(name) const`: it returns the parameter that an ignored tensor must be a copy of, or nullopt; values that
/// differ are an error. A model may have `bool draws_random_numbers() const`, for training: without it, or if it is
/// true, steps are captured as graphs only on request.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <string>

#include <tessera/fsdp/models/units_of.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/one_of.hpp>

namespace fsdp {

namespace detail {

/// A visitor like the visitors of flags, for the concept's check.
struct AnyVisitor {
  template <class T>
  void operator()(const char* name, T& value, const char* help) const;
};

}  // namespace detail

/// A model's config. `Config::read(folder)` reads it from config.json; `write()` returns that file's text; `validate()`
/// throws InputError for an invalid value. `static visit(self, visitor)` calls visitor(name, value, help) for each
/// value of `self`, a const or mutable config; a value is std::int64_t, double, bool or std::string. Optional members
/// for the command line: see tessera/trainer/flags/model_choice.hpp.
template <class C>
concept ModelConfig = std::copyable<C> && requires(C changed, const C config, const std::filesystem::path& folder) {
  { C::read(folder) } -> std::same_as<C>;
  { config.write() } -> std::same_as<std::string>;
  config.validate();
  C::visit(config, detail::AnyVisitor{});
  C::visit(changed, detail::AnyVisitor{});
};

/// The types that a model must have.
template <class M>
concept ModelTypes = requires {
  typename M::Stack;
  typename M::Local;
  typename M::Config;
  typename M::Batch;
  typename M::Entry;
  typename M::Block;
  typename M::Head;
  requires std::same_as<typename M::Local, typename M::Stack::Local>;
};

/// The units that a model must have, and their shared types.
template <class M>
concept ModelUnits = ModelTypes<M> && requires(const M model, int index) {
  { model.entry() } -> std::same_as<typename M::Entry>;
  { model.blocks() } -> std::same_as<int>;
  { model.block(index) } -> std::same_as<typename M::Block>;
  { model.head() } -> std::same_as<typename M::Head>;
  { model.prefix(index) } -> std::same_as<std::string>;
  { model.hidden() } -> std::same_as<std::int64_t>;  // number of columns of the residual stream
};

/// A model: see the file comment.
template <class M>
concept Model = ModelUnits<M> && ModelConfig<typename M::Config> && nn::Batch<typename M::Batch, typename M::Local> &&
    nn::EntryModule<typename M::Entry, typename M::Local, nn::InputOf<typename M::Batch, typename M::Local>> &&
    nn::all_kinds_are_blocks<typename M::Block, typename M::Local> &&
    std::same_as<typename M::Entry::Shared, typename M::Block::Shared> &&
    nn::LossModule<typename M::Head, typename M::Local, nn::TargetsOf<typename M::Batch, typename M::Local>> &&
    std::constructible_from<M, const typename M::Config&, UnitOptions> &&
    requires(const M model, const typename M::Batch& batch, std::int64_t number) {
  requires std::same_as<typename M::template On<typename M::Stack>, M>;
  { model.config() } -> std::same_as<const typename M::Config&>;
  { model.units() } -> std::same_as<const UnitOptions&>;
  model.validate(batch, number);  // throws InputError unless the model can use the batch with this sequence length
  // For dry runs: returns the batch of this number of sequences and length with the largest memory use; see
  // nn::for_each_load.
  { model.unread_batch(number, number) } -> std::same_as<typename M::Batch>;
  { model.flops(number, number) } -> std::same_as<double>;  // tokens, sum of squared document lengths
};

/// Gives a readable compile error for each requirement of a model that a type does not meet. Call it where the type is
/// first used.
template <class M>
consteval bool check_model() {
  static_assert(
      ModelTypes<M>,
      "fsdp: a model lacks one of the types Stack, Local (its Stack's), Config, Batch, Entry, Block, Head, so "
      "nobody knows what it is made of; see tessera/fsdp/models/model.hpp");
  if constexpr (ModelTypes<M>) {
    using Config = typename M::Config;
    using Local = typename M::Local;
    using Batch = typename M::Batch;
    static_assert(
        requires(const Config config) { Config::visit(config, detail::AnyVisitor{}); },
        "fsdp: a model's Config lacks static visit(self, visitor), which calls visitor(name, value, help) for each "
        "value of self, so "
        "that flags and metrics know none of them; see tessera/fsdp/models/model.hpp");
    static_assert(
        requires(const Config config) { config.validate(); },
        "fsdp: a model's Config lacks void validate() const, so that sizes which cannot work would be found "
        "late; throw InputError from it");
    static_assert(ModelConfig<Config>,
                  "fsdp: a model's Config is copied, read from a folder by static Config read(path), written by "
                  "std::string write() const, and visited const or not; give it all of them");
    static_assert(ModelUnits<M>,
                  "fsdp: a model lacks one of entry(), int blocks(), block(int), head(), std::string prefix(int), "
                  "std::int64_t hidden(), so that its units cannot be listed; see tessera/fsdp/models/model.hpp");
    static_assert(nn::Batch<Batch, Local>,
                  "fsdp: a model's Batch lacks sequences, counts(), pattern() or upload(context), so that it cannot be "
                  "fed; see tessera/fsdp/nn/batch.hpp");
    if constexpr (nn::Batch<Batch, Local> && ModelUnits<M>) {
      static_assert(nn::EntryModule<typename M::Entry, Local, nn::InputOf<Batch, Local>>,
                    "fsdp: a model's Entry does not take the input of the model's Batch: it has parameters, share, "
                    "forward and backward; see EntryModule in tessera/fsdp/nn/module.hpp");
      static_assert(nn::check_batch_parts<Batch>());
      static_assert(
          !M::Stack::Sequence::shards || nn::DivisibleBatch<Batch>,
          "fsdp: several ranks share each sequence of this stack (Ulysses), and the model's Batch lacks Batch "
          "part(int part, int parts) const, the rows of one of them; add it, or take WholeSequences");
      static_assert(nn::all_kinds_are_blocks<typename M::Block, Local>,
                    "fsdp: a model's Block, or a kind of its OneOf, lacks forward or backward with (context, shared, "
                    "weights, ...); see BlockModule in tessera/fsdp/nn/module.hpp");
      static_assert(nn::LossModule<typename M::Head, Local, nn::TargetsOf<Batch, Local>>,
                    "fsdp: a model's Head does not take the targets of the model's Batch: it has parameters, loss and "
                    "loss_only; see LossModule in tessera/fsdp/nn/module.hpp");
      if constexpr (nn::all_kinds_are_blocks<typename M::Block, Local>)
        static_assert(nn::parts_of_all_kinds<typename M::Block, Local>);
      static_assert(nn::check_head_parts<typename M::Head, Local>());
      if constexpr (requires {
                      typename M::Entry::Shared;
                      typename M::Block::Shared;
                    })
        static_assert(std::same_as<typename M::Entry::Shared, typename M::Block::Shared>,
                      "fsdp: a model's blocks read another Shared than its entry makes; use one type for both, or "
                      "nn::Nothing");
    }
    static_assert(check_ignored_tensors<M>());
    static_assert(
        requires(const M model, std::int64_t number) {
          { model.flops(number, number) } -> std::same_as<double>;
        },
        "fsdp: a model lacks double flops(tokens, squares) const, the count that MFU divides by; recomputation is not "
        "in it");
  }
  static_assert(
      Model<M>,
      "fsdp: a model is made of (Config, UnitOptions) and has config(), units(), validate(batch, sequence_length), "
      "unread_batch(sequences, sequence_length) and On<Stack>; give it those that it lacks");
  return Model<M>;
}

}  // namespace fsdp
