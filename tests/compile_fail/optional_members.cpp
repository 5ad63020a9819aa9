// SPDX-License-Identifier: Apache-2.0
// An optional member of the wrong type is refused instead of being treated as absent.
// expect 1: fsdp: a policy has a text() that gives no text; make it std::string text() const, or static, without
// expect 1: fsdp: a policy has a name that is no text; make it static constexpr std::string_view name
// expect 1: fsdp: a sharding strategy has a mesh_axes that is no static constexpr int of 1 or 2
// expect 1: fsdp: a sharding strategy has an axes_by_value that is no static constexpr bool
// expect 1: fsdp: a sharding strategy has an Across that is no placement; take fsdp::buffer::Shard or Replicate
// expect 1: fsdp: a sharding strategy has an offloads_optimizer that is no static constexpr bool
// expect 1: fsdp: a sharding strategy has a schedule that is no fsdp::sharding::Schedule schedule(const
// expect 1: fsdp: a sharding strategy has a facts that is no fsdp::sharding::Facts facts() const, so that its rules'
// expect 1: fsdp: a sharding strategy has a layout that is no Layout layout() const, so that Layout{} would be used
// expect 1: fsdp: a sharding strategy's Layout has no default constructor, so that its numbers are not known
// expect 1: fsdp: a layout policy has a keeps_tensors_whole that is no static constexpr bool
// expect 2: fsdp: an optimizer has a validate that is no void validate() const
// expect 2: fsdp: an optimizer has a step_work that is no StepWork step_work() const
// expect 2: fsdp: an optimizer has a work that is no std::int64_t work(const Parameter&) const
// expect 2: fsdp: an optimizer has a block that is no std::int64_t block(const Parameter&) const
// expect 2: fsdp: a batch has documents that are no device::CumulativeLengths
// expect 2: fsdp: a batch has a noise that is no nn::Noise
// expect 2: fsdp: a batch has a set_noise that is no void set_noise(std::uint64_t key, std::int64_t first)
// expect 2: fsdp: a batch has a unit that is no static constexpr std::string_view
// expect 2: fsdp: a batch has a loss_unit that is no static constexpr std::string_view
// expect 2: fsdp: a source of batches has an order that is no data::Order order(std::uint64_t seed) const
// expect 2: fsdp: a source of batches has an identity that is no std::string identity() const
// expect 2: fsdp: a block has a plan that is no tiling::TilePlan plan(nn::Context<L>&) const
// expect 2: fsdp: a block has cache_columns or extend, and not both as a KV cache needs them
// expect 2: fsdp: a block states some of its stages, and not all with the arguments that ranks need to share a sequence
// expect 2: fsdp: a block's common_inputs is above its inputs; common are the last of the matrices that its
// expect 2: fsdp: a head has logits or logits_columns, and not both as a model needs them to generate
// expect 3: fsdp: a device has a Graph or a capture, and not both as capturing needs them
// expect 3: fsdp: a device has a flops_per_byte that is no static constexpr std::int64_t
// expect 3: fsdp: a device has a free_bytes that is no static std::int64_t free_bytes()
// expect 3: fsdp: a config has a part of its presets, and not all as --model needs them
// expect 3: fsdp: a config has a longest_sequence, and not both that --seq-len needs
// expect 3: fsdp: a config has adapters, and not both that LoRA needs
// expect 3: fsdp: a config has an unmatched_target that is no std::string unmatched_target() const
// expect 3: fsdp: a config with adapters has no static bool may_be_added(std::string_view name)
// expect 3: fsdp: a config has a follow that does not take a changed(std::string_view)
#include <concepts>

#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/device.hpp>
#include <tessera/fsdp/models/model.hpp>
#include <tessera/fsdp/nn/loss_head.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/fsdp/nn/transformer_block.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/data/source.hpp>
#include <tessera/trainer/flags/model_choice.hpp>

namespace fsdp {

struct TextOfNumber {
  int text() const;
};
struct TextThatChanges {
  std::string text();
};
struct TextOfArgument {
  static std::string text(int);
};
struct NumberAsName {
  static constexpr int name = 3;
};
struct TextAsView {
  std::string_view text() const { return "view"; }
};

/// All strategies below have the schedules of Zero3; checking them again would take about a second each.
template <class S>
requires std::derived_from<S, Zero3>
inline constexpr bool detail::checked_by_library<S> = true;

struct AxesAtRunTime : Zero3 {
  int mesh_axes = 2;
};
struct AxesByValueAtRunTime : Zero3 {
  bool axes_by_value = true;
};
struct AcrossNothing : Zero3 {
  using Across = int;
};
struct OffloadsAtRunTime : Zero3 {
  bool offloads_optimizer() const;
};
struct ScheduleThatChanges : Zero3 {
  sharding::Schedule schedule(const sharding::Problem& problem);
};
struct FactsByReference : Zero3 {
  const sharding::Facts& facts() const;
};
struct OtherLayout : Zero3 {
  buffer::PerParameter layout() const;
};
struct Sized : buffer::Flat {
  explicit Sized(int size);
};
struct LayoutWithoutNumbers : Zero3 {
  using Layout = Sized;
};
struct WholeAtRunTime : buffer::Flat {
  bool keeps_tensors_whole = true;
};
struct MaybeWhole : Zero3 {
  using Layout = WholeAtRunTime;
};

struct ValidatesItsChange : optim::AdamW {
  void validate();
};
struct WorksByValue : optim::AdamW {
  std::int64_t step_work() const;
};
struct WorksOnItself : optim::AdamW {
  std::int64_t work(const Parameter& parameter);
};
struct NumberAsBlock : optim::AdamW {
  std::int64_t block = 256;
};

struct ListedDocuments : TokenBatch {
  std::vector<int> documents;
};
struct NumberAsNoise : TokenBatch {
  int noise = 0;
};
struct NoiseWithoutPlace : TokenBatch {
  void set_noise(std::uint64_t key);
};
struct UnitAtRunTime : TokenBatch {
  std::string unit;
};
struct NumberAsUnit : TokenBatch {
  static constexpr int loss_unit = 1;
};
struct ListedOrder {
  std::int64_t training() const;
  std::vector<std::int64_t> order(std::uint64_t seed) const;
};
struct NumberedSource {
  using Batch = TokenBatch;
  using Storage = int;
  std::int64_t training() const;
  std::int64_t validation() const;
  std::int64_t sequence_length() const;
  Storage storage(std::int64_t sequences, data::Allocate allocate) const;
  Batch fill(Storage& storage, std::span<const std::int64_t> samples) const;
  std::string text() const;
  std::uint64_t identity() const;
};

using Here = Local<device::Cpu, Fp32>;
struct PlansInBytes : nn::TransformerBlock<Here> {
  std::int64_t plan(nn::Context<Here>& context) const;
};
struct CachesInt : nn::TransformerBlock<Here> {
  int cache_columns() const;
};
struct MiddleWithoutRange : nn::TransformerBlock<Here> {
  void between(nn::Context<Here>& all) const;
};
struct MoreCommonThanInputs : nn::TransformerBlock<Here> {
  static constexpr std::size_t inputs = 3, common_inputs = inputs + 1;
};
struct LogitsAlone : nn::LossHead<Here> {
  int logits_columns() const;
};

struct CapturesNothing : device::Cpu {
  struct Graph {};
};
struct FlopsAtRunTime : device::Cpu {
  std::int64_t flops_per_byte() const;
};
struct FreeInside : device::Cpu {
  std::int64_t free_bytes() const;
};
struct PresetAlone {
  static PresetAlone preset(std::string_view name);
};
struct LongestAlone {
  std::int64_t longest_sequence() const;
};
struct AdaptersByValue {
  LoraConfig adapters() const;
};
struct CountsUnmatched {
  int unmatched_target() const;
};
struct AddsAnything {
  LoraConfig lora;
  LoraConfig& adapters() { return lora; }
  const LoraConfig& adapters() const { return lora; }
};
struct FollowsNothing {
  void follow();
};

#if CASE == 0
const std::string view = policy_text(TextAsView{}) + policy_text<FullyShard<>>();
static_assert(check_sharding<HybridShard<WithLayout<FullyShard<>, buffer::Owned>>>());
static_assert(nn::check_batch_parts<TokenBatch>() && nn::unit_of<TokenBatch>() == "tokens");
static_assert(nn::check_block_parts<nn::TransformerBlock<Here>, Here>());
static_assert(nn::check_head_parts<nn::LossHead<Here>, Here>());
#elif CASE == 1
const std::string texts = policy_text(TextOfNumber{}) + policy_text(TextThatChanges{}) + policy_text<TextOfArgument>();
const std::string name = policy_text<NumberAsName>();
static_assert(check_sharding<AxesAtRunTime>());
static_assert(check_sharding<AxesByValueAtRunTime>());
static_assert(check_sharding<AcrossNothing>());
static_assert(check_sharding<OffloadsAtRunTime>());
static_assert(check_sharding<ScheduleThatChanges>());
static_assert(check_sharding<FactsByReference>());
static_assert(check_sharding<OtherLayout>());
static_assert(check_sharding<LayoutWithoutNumbers>());
static_assert(check_sharding<MaybeWhole>());
#elif CASE == 2
static_assert(optim::check_optimizer<ValidatesItsChange>());
static_assert(optim::check_optimizer<WorksByValue>());
static_assert(optim::check_optimizer<WorksOnItself>());
static_assert(optim::check_optimizer<NumberAsBlock>());
static_assert(nn::check_batch_parts<ListedDocuments>());
static_assert(nn::check_batch_parts<NumberAsNoise>());
static_assert(nn::check_batch_parts<NoiseWithoutPlace>());
static_assert(nn::check_batch_parts<UnitAtRunTime>());
static_assert(nn::check_batch_parts<NumberAsUnit>());
data::Sampler sampler = data::sampler_of(ListedOrder{}, 1, 2);
static_assert(data::check_source<NumberedSource>());
static_assert(nn::check_block_parts<PlansInBytes, Here>());
static_assert(nn::check_block_parts<CachesInt, Here>());
static_assert(nn::check_block_parts<MiddleWithoutRange, Here>());
static_assert(nn::check_block_parts<MoreCommonThanInputs, Here>());
static_assert(nn::check_head_parts<LogitsAlone, Here>());
#elif CASE == 3
static_assert(device::check_device<CapturesNothing>());
static_assert(device::check_device<FlopsAtRunTime>());
static_assert(device::check_device<FreeInside>());
static_assert(train::check_config_parts<PresetAlone>());
static_assert(train::check_config_parts<LongestAlone>());
static_assert(train::check_config_parts<AdaptersByValue>());
static_assert(train::check_config_parts<CountsUnmatched>());
static_assert(train::check_config_parts<AddsAnything>());
static_assert(train::check_config_parts<FollowsNothing>());
#endif

}  // namespace fsdp
