// SPDX-License-Identifier: Apache-2.0
// expect 1: fsdp: a model's Config lacks static visit(self, visitor), which calls visitor(name, value, help) for
// expect 2: fsdp: a model's Config lacks void validate() const
// expect 3: fsdp: a model's Block, or a kind of its OneOf, lacks forward or backward with (context, shared, weights
// expect 4: fsdp: a model's blocks read another Shared than its entry makes
// expect 5: fsdp: a model lacks double flops(tokens, squares) const
// expect 5: fsdp: a model has an ignored that is no std::optional<std::string> ignored(const std::string& name) const
// expect 5: fsdp: a model has a copied that is no std::optional<std::string> copied(const std::string& name) const
// expect 6: fsdp: a model's Batch lacks sequences, counts(), pattern() or upload(context)
// expect 7: fsdp: a model lacks one of the types Stack, Local (its Stack's), Config, Batch, Entry, Block, Head
// expect 8: fsdp: nn::OneOf lists a kind of block twice
// expect 9: fsdp: a model's config visits a value that is no std::int64_t, double, bool or std::string
// expect 10: fsdp: a source of batches lacks one of training(), validation(), sequence_length(), storage(
// expect 11: fsdp: several ranks share each sequence of this stack (Ulysses), and the model's Batch lacks Batch
// expect 12: fsdp: several ranks share each sequence of this stack (Ulysses), and what they exchange is compiled
// expect 13: fsdp: a policy of sequences shards them, and has no template Sharing<Model>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/models/model.hpp>
#include <tessera/trainer/data/source.hpp>

namespace fsdp {

using Sound = Llama<Stack<FullyShard<>, comm::Threads<>, Fp32, tiling::Untiled>>;
using Here = Sound::Local;

struct WithoutVisit : LlamaConfig {
  void visit() const;
};
struct WithoutValidate : LlamaConfig {
  void validate();
};
struct BlockWithoutBackward : nn::TransformerBlock<Here> {
  void backward() const;
};
struct OtherShared : nn::TransformerBlock<Here> {
  struct Shared : nn::RotaryTable {};
};
struct WithoutCounts : TokenBatch {
  void counts() const;
};
struct WithList {
  std::vector<double> list = {1};
  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("list", self.list, "no single value");
  }
};

/// Llama with one type replaced.
template <class ConfigT, class BatchT, class BlockT>
struct Changed : Sound {
  using Config = ConfigT;
  using Batch = BatchT;
  using Block = BlockT;
  Block block(int) const;
};
struct WithoutFlops : Sound {
  void flops() const;
};
struct IgnoresANumber : Sound {
  std::optional<std::string> ignored(int number) const;
};
struct CopiesOnChange : Sound {
  std::optional<std::string> copied(const std::string& name);
};
using SharesSequences = Llama<Stack<FullyShard<>, comm::Threads<>, Fp32, tiling::Untiled, Ulysses>>;
struct WithoutPart : TokenBatch {
  void part(int part, int parts) const;
};
struct SharesWhatHasNoParts : SharesSequences {
  using Batch = WithoutPart;
};
struct SharesNothing {
  static constexpr bool shards = true;
  int ranks_per_sequence() const;
  int middle_parts() const;
};
struct SourceWithoutFill {
  using Batch = TokenBatch;
  using Storage = int;
  std::int64_t training() const;
};

#if CASE == 0
static_assert(check_model<Sound>());
static_assert(check_model<SharesSequences>());
nn::OneOf<nn::ResidualAttention<Here>, nn::TransformerBlock<Here>> block;
#elif CASE == 1
static_assert(check_model<Changed<WithoutVisit, TokenBatch, Sound::Block>>());
#elif CASE == 2
static_assert(check_model<Changed<WithoutValidate, TokenBatch, Sound::Block>>());
#elif CASE == 3
static_assert(check_model<Changed<LlamaConfig, TokenBatch, BlockWithoutBackward>>());
#elif CASE == 4
static_assert(check_model<Changed<LlamaConfig, TokenBatch, OtherShared>>());
#elif CASE == 5
static_assert(check_model<WithoutFlops>());
static_assert(check_model<IgnoresANumber>());
static_assert(check_model<CopiesOnChange>());
#elif CASE == 6
static_assert(check_model<Changed<LlamaConfig, WithoutCounts, Sound::Block>>());
#elif CASE == 7
static_assert(check_model<int>());
#elif CASE == 8
nn::OneOf<nn::TransformerBlock<Here>, nn::TransformerBlock<Here>> block;
#elif CASE == 9
ConfigValues values = values_of(WithList{});
#elif CASE == 10
static_assert(data::check_source<SourceWithoutFill>());
#elif CASE == 11
static_assert(check_model<SharesWhatHasNoParts>());
#elif CASE == 12
SequencesOf<SharesSequences> shared;
#elif CASE == 13
SequencesOf<Llama<Stack<FullyShard<>, comm::Threads<>, Fp32, tiling::Untiled, SharesNothing>>> shared;
#endif

}  // namespace fsdp
