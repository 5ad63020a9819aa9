// SPDX-License-Identifier: Apache-2.0

#include "bare_loop.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <type_traits>
#include <vector>

#include <tessera/comm/self.hpp>
#include <tessera/fsdp/models/llama.hpp>

namespace fsdp::bench {
template <class PrecisionT>
struct BareLoop<PrecisionT>::State {
  using Model = Llama<Stack<Replicated, comm::Self<>, PrecisionT>>;
  using Device = device::Cpu;
  using Compute = typename PrecisionT::Compute;
  using End = Device::Arena::End;
  using Block = device::Block<Device>;
  static constexpr bool one_copy = std::is_same_v<Compute, float>;

  /// A weight with its gradient, moments and model copy.
  struct Weight {
    Tensor<float> main, first, second, gradient;
    Tensor<Compute> model;
    bool written = false;
  };

  State(const LlamaConfig& config, const RunShape& shape)
      : model(config),
        entry(model.entry()),
        block(model.block(0)),
        head(model.head()),
        arena(ledger, shape.activation_bytes),
        stream(arena, shape.threads()),
        context{.arena = arena,
                .stream = stream,
                .plans = std::make_shared<nn::TilePlans>(*shape.plans),
                .sequence_length = shape.size.sequence_length},
        saved(static_cast<std::size_t>(config.layers)),
        marks(saved.size()) {
    std::vector<nn::Parameter> parameters;
    const auto list = [&](const auto& unit, const std::string& prefix) {
      std::vector<std::size_t> indices;
      for (const nn::Parameter& parameter : nn::flatten(unit.parameters())) {
        const std::string name = parameter.name[0] == '/' ? parameter.name + 1 : prefix + parameter.name;
        if (parameter.present()) names[name] = parameters.size();
        indices.push_back(parameters.size());
        parameters.push_back(parameter);
      }
      units.push_back(indices);
    };
    list(entry, "");
    for (int i = 0; i < model.blocks(); ++i) list(block, model.prefix(i));
    list(head, "");

    std::int64_t size = 0;
    for (const nn::Parameter& parameter : parameters) size += padded(parameter.shape);
    for (Block& memory : memories) memory = Block(ledger, device::MemoryKind::weights, size * 4);
    if constexpr (!one_copy) rounded = Block(ledger, device::MemoryKind::weights, size * 2);
    std::int64_t at = 0;
    for (const nn::Parameter& parameter : parameters) {
      const auto view = [&](const Block& memory) {
        return Tensor<float>(reinterpret_cast<float*>(memory.data()) + at, parameter.shape);
      };
      Weight weight{.main = view(memories[0]),
                    .first = view(memories[1]),
                    .second = view(memories[2]),
                    .gradient = view(memories[3]),
                    .model = {}};
      if constexpr (one_copy)
        weight.model = weight.main;
      else
        weight.model = {reinterpret_cast<Compute*>(rounded.data()) + at, parameter.shape};
      weights.push_back(weight);
      at += padded(parameter.shape);
    }
  }

  /// Every tensor starts at a multiple of 64 elements.
  static std::int64_t padded(const Shape& shape) { return round_up(shape.numel(), 64); }

  template <class Unit>
  typename Unit::Weights weights_of(const Unit&, std::size_t unit) const {
    std::array<Tensor<const Compute>, Unit::parameter_count> list;
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = weights[units[unit][i]].model;
    return nn::unflatten<Unit::template FieldsOf, Tensor<const Compute>>(list);
  }

  template <class Unit>
  typename Unit::Gradients gradients_of(const Unit&, std::size_t unit) {
    std::array<nn::GradientView<float>, Unit::parameter_count> list;
    for (std::size_t i = 0; i < list.size(); ++i) {
      Weight& weight = weights[units[unit][i]];
      list[i] = {weight.gradient, &weight.written};
    }
    return nn::unflatten<Unit::template FieldsOf, nn::GradientView<float>>(list);
  }

  double gradients(const TokenBatch& batch, float scale) {
    context.sequences = batch.sequences;
    const Shape shape{context.tokens(), model.hidden()};
    const auto start = arena.mark(End::low);
    const auto positions = entry.share(context);
    auto x = context.template save<Compute>(shape);  // [T, H]
    entry.forward(context, weights_of(entry, 0), batch.tokens, x);
    for (std::size_t i = 0; i < saved.size(); ++i) {
      marks[i] = arena.mark(End::low);
      const auto y = context.template save<Compute>(shape);  // [T, H]
      block.forward(context, positions, weights_of(block, i + 1), saved[i], x, y);
      x = y;
    }
    double loss = 0;
    const auto high = arena.mark(End::high);
    const auto dx = arena.template allocate<Compute>(End::high, shape);  // [T, H]
    const std::size_t last = saved.size() + 1;
    head.loss(context, weights_of(head, last), gradients_of(head, last), x, batch.targets, scale, dx,
              Tensor<double>(&loss, {1}));
    for (std::size_t i = saved.size(); i-- > 0;) {
      block.backward(context, positions, weights_of(block, i + 1), gradients_of(block, i + 1), saved[i], dx);
      arena.release(End::low, marks[i]);
    }
    entry.backward(context, gradients_of(entry, 0), batch.tokens, dx);
    arena.release(End::high, high);
    arena.release(End::low, start);
    return loss;
  }

  void adamw(double lr, double loss, double squares) {
    const device::StepInputs inputs{.lr = lr};
    const std::array sums = {loss, squares};
    device::enqueue(
        stream, device::DecideStep{.inputs = {&inputs, {1}}, .sums = {sums.data(), {1, 2}}, .step = {&decision, {1}}});
    for (const Weight& weight : weights) {
      const device::AdamWRules rules{.weight_decay = weight.main.rank() == 2 ? 0.1f : 0.0f};
      Tensor<bf16> model_weight;
      if constexpr (!one_copy) model_weight = weight.model;
      device::enqueue(stream, device::AdamWStep<bf16>{.rules = rules,
                                                      .step = {&decision, {1}},
                                                      .main = weight.main,
                                                      .first_moment = weight.first,
                                                      .second_moment = weight.second,
                                                      .gradient = weight.gradient,
                                                      .model = model_weight});
    }
  }

  device::Ledger ledger;
  Model model;
  typename Model::Entry entry;
  typename Model::Block block;
  typename Model::Head head;
  Device::Arena arena;
  Device::Stream stream;
  nn::Context<typename Model::Local> context;
  std::vector<typename Model::Block::Saved> saved;
  std::vector<Device::Arena::Mark> marks;
  std::map<std::string, std::size_t> names;
  std::vector<std::vector<std::size_t>> units;  ///< numbers of the weights in each unit
  std::array<Block, 4> memories;                ///< main, first and second moments, gradients
  Block rounded;
  std::vector<Weight> weights;
  device::StepDecision decision;
};

template <class PrecisionT>
BareLoop<PrecisionT>::BareLoop(const LlamaConfig& config, const RunShape& shape)
    : state_(std::make_unique<State>(config, shape)) {}
template <class PrecisionT>
BareLoop<PrecisionT>::BareLoop(BareLoop&&) noexcept = default;
template <class PrecisionT>
BareLoop<PrecisionT>::~BareLoop() = default;

template <class PrecisionT>
void BareLoop<PrecisionT>::set(const std::string& name, std::int64_t begin, Tensor<const float> values) {
  const auto& weight = state_->weights[state_->names.at(name)];
  std::copy_n(values.data(), values.numel(), weight.main.data() + begin);
  if constexpr (!State::one_copy)
    for (std::int64_t i = 0; i < values.numel(); ++i)
      weight.model.data()[begin + i] = typename State::Compute(values.data()[i]);
}

template <class PrecisionT>
double BareLoop<PrecisionT>::step(const TokenBatch& batch, double lr) {
  const auto targets = static_cast<double>(batch.targets.numel());
  for (auto& weight : state_->weights) weight.written = false;
  const double loss = state_->gradients(batch, 1.0f / static_cast<float>(targets)) / targets;
  double sum = 0;
  for (const auto& weight : state_->weights)
    device::enqueue(state_->stream,
                    device::SumOfSquares{.x = Tensor<const float>(weight.gradient.data(), {weight.gradient.numel()}),
                                         .sum = Tensor<double>(&sum, {1})});
  require<Error>(std::isfinite(loss) && std::isfinite(sum), "bench: the hand-written loop's loss is ", loss);
  state_->adamw(lr, loss, sum);
  return loss;
}

template class BareLoop<Fp32>;
template class BareLoop<Bf16Mixed>;

}  // namespace fsdp::bench
