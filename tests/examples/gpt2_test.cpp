// SPDX-License-Identifier: Apache-2.0
// GPT-2, a user-defined model: under every kind of strategy, with and without tiling, and compared with float64.
#include <examples/13_gpt2/model.hpp>

#include <cmath>
#include <map>
#include <vector>

#include <tessera/fsdp/testing/model.hpp>

namespace fsdp::test {
namespace {

template <class Sharding>
using Gpt2On = gpt2::Gpt2<testing::ModelStack<Sharding>>;
static_assert(check_model<Gpt2On<RunTimeSharded>>() && !Model<gpt2::Gpt2Config>);

constexpr std::int64_t length = 11, sequences = 2, micro_batches = 2;
constexpr gpt2::Gpt2Config config{.vocab_size = 29, .n_positions = 12, .n_embd = 12, .n_layer = 2, .n_head = 3};

/// Each token is computed from the previous one; some targets are ignored, at positions that differ by rank.
struct Data {
  Data(int rank, const gpt2::Gpt2Config& sizes) {
    constexpr std::int64_t tokens = length * sequences;
    for (int m = 0; m < micro_batches; ++m) {
      auto& memory = lists.emplace_back(2 * tokens);
      for (std::int64_t i = 0; i < tokens; ++i) {
        const auto at = static_cast<std::size_t>(i);
        memory[at] = static_cast<std::int32_t>((5 * i + 3 * m + 7 * rank) % sizes.vocab_size);
        memory[at + tokens] = (i + rank) % 9 == 4 ? -1 : static_cast<std::int32_t>((memory[at] + 5) % sizes.vocab_size);
      }
    }
    for (const auto& list : lists)
      batches.push_back(
          {.tokens = {list.data(), {tokens}}, .targets = {list.data() + tokens, {tokens}}, .sequences = sequences});
  }
  std::vector<std::vector<std::int32_t>> lists;
  std::vector<TokenBatch> batches;
};

struct Gpt2 {
  template <class Stack>
  using Model = gpt2::Gpt2<Stack>;
  using Data = test::Data;
  static constexpr double learns_to = 0.5;
  static std::vector<tiling::RunTimeTiling> tilings() { return {tiling::RunTimeTiling::budget(4000)}; }
  static gpt2::Gpt2Config config() { return test::config; }
  static train::StepSize size() {
    return {.sequences = sequences, .sequence_length = length, .micro_batches = micro_batches, .threads = 1};
  }
};

// ---- A float64 reference of the model without library code

using Numbers = std::vector<double>;
using Weights = std::map<std::string, Numbers>;

/// [T, in] x [in, out] + bias.
Numbers linear(const Numbers& x, const Weights& weights, const std::string& name) {
  const Numbers &w = weights.at(name + ".weight"), &bias = weights.at(name + ".bias");
  const std::size_t out = bias.size(), in = w.size() / out, tokens = x.size() / in;
  Numbers y(tokens * out);
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t o = 0; o < out; ++o) {
      y[t * out + o] = bias[o];
      for (std::size_t i = 0; i < in; ++i) y[t * out + o] += x[t * in + i] * w[i * out + o];
    }
  return y;
}

Numbers layer_norm(const Numbers& x, const Weights& weights, const std::string& name) {
  const Numbers &w = weights.at(name + ".weight"), &bias = weights.at(name + ".bias");
  const std::size_t width = w.size();
  Numbers y(x.size());
  for (std::size_t begin = 0; begin < x.size(); begin += width) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < width; ++i) mean += x[begin + i] / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i) variance += std::pow(x[begin + i] - mean, 2) / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i)
      y[begin + i] = (x[begin + i] - mean) / std::sqrt(variance + 1e-5) * w[i] + bias[i];
  }
  return y;
}

/// The attention of one sequence.
Numbers attention(const Numbers& qkv, std::size_t heads) {
  const std::size_t width = config.n_embd, d = width / heads, tokens = qkv.size() / (3 * width);
  Numbers out(tokens * width);
  const auto at = [&](std::size_t t, std::size_t which, std::size_t i) {
    return qkv[t * 3 * width + which * width + i];
  };
  for (std::size_t head = 0; head < heads; ++head)
    for (std::size_t t = 0; t < tokens; ++t) {
      Numbers weight(t + 1);
      double sum = 0;
      for (std::size_t s = 0; s <= t; ++s) {
        double score = 0;
        for (std::size_t i = 0; i < d; ++i) score += at(t, 0, head * d + i) * at(s, 1, head * d + i);
        sum += weight[s] = std::exp(score / std::sqrt(static_cast<double>(d)));
      }
      for (std::size_t s = 0; s <= t; ++s)
        for (std::size_t i = 0; i < d; ++i) out[t * width + head * d + i] += weight[s] / sum * at(s, 2, head * d + i);
    }
  return out;
}

/// The sum of the targets' negative log likelihoods in one sequence.
double reference_loss(const Weights& weights, const std::int32_t* tokens, const std::int32_t* targets) {
  const auto width = static_cast<std::size_t>(config.n_embd), vocabulary = static_cast<std::size_t>(config.vocab_size);
  const Numbers &table = weights.at("wte.weight"), &positions = weights.at("wpe.weight");
  Numbers x(length * width);
  const auto add = [&](const Numbers& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  };
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = table[static_cast<std::size_t>(tokens[i / width]) * width + i % width] + positions[i];
  for (std::int64_t block = 0; block < config.n_layer; ++block) {
    const std::string name = "h." + std::to_string(block) + ".";
    const Numbers qkv = linear(layer_norm(x, weights, name + "ln_1"), weights, name + "attn.c_attn");
    add(linear(attention(qkv, static_cast<std::size_t>(config.n_head)), weights, name + "attn.c_proj"));
    Numbers h = linear(layer_norm(x, weights, name + "ln_2"), weights, name + "mlp.c_fc");
    for (double& v : h) v *= 0.5 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
    add(linear(h, weights, name + "mlp.c_proj"));
  }
  x = layer_norm(x, weights, "ln_f");
  double loss = 0;
  for (std::size_t t = 0; t < length; ++t) {
    if (targets[t] < 0) continue;
    double sum = 0, target = 0;
    for (std::size_t v = 0; v < vocabulary; ++v) {
      double logit = 0;
      for (std::size_t i = 0; i < width; ++i) logit += x[t * width + i] * table[v * width + i];
      sum += std::exp(logit);
      if (v == static_cast<std::size_t>(targets[t])) target = logit;
    }
    loss += std::log(sum) - target;
  }
  return loss;
}

TEST(Gpt2, LossMatchesFloat64) {
  comm::Threads<>::run(1, {.checks = true}, [](comm::Threads<>& communicator) {
    train::Training<Gpt2On<RunTimeSharded>> training(communicator, Gpt2On<RunTimeSharded>(config),
                                                     {.sequences = sequences, .sequence_length = length},
                                                     {FullyShard<>{}}, tiling::RunTimeTiling::tokens(8));
    testing::spread_weights(training.module(), 0.3);
    Weights weights;
    for (const auto& piece : training.module().shards())
      weights[piece.parameter->name].assign(piece.main.data(), piece.main.data() + piece.main.numel());
    const Data data(0, config);
    for (const TokenBatch& batch : data.batches) {
      double expected = 0;
      for (std::int64_t s = 0; s < sequences; ++s)
        expected += reference_loss(weights, batch.tokens.data() + s * length, batch.targets.data() + s * length);
      EXPECT_NEAR(training.executor().evaluate(batch), expected, 2e-6 * expected);
    }
  });
}

// ---- Names, shapes and config

TEST(Gpt2, NamesAndShapesMatchHuggingFace) {
  const gpt2::Gpt2Config own{.vocab_size = 50257, .n_positions = 1024, .n_embd = 768, .n_layer = 12, .n_head = 12};
  const Gpt2On<RunTimeSharded> model(own);
  EXPECT_EQ(parameter_count(model), 124439808);
  std::map<std::string, Shape> shapes;
  for (const Parameter& parameter : parameter_list(model)) shapes[parameter.name] = parameter.shape;
  EXPECT_EQ(shapes.size(), 4u + 12 * 12);
  EXPECT_EQ(shapes.at("wpe.weight"), (Shape{1024, 768}));
  EXPECT_EQ(shapes.at("h.11.attn.c_attn.weight"), (Shape{768, 2304}));
  EXPECT_EQ(shapes.at("h.0.mlp.c_proj.weight"), (Shape{3072, 768}));
  EXPECT_EQ(shapes.at("ln_f.bias"), (Shape{768}));
  EXPECT_EQ(model.ignored("h.3.attn.bias"), "");
  EXPECT_EQ(model.copied("lm_head.weight"), "wte.weight");
  EXPECT_FALSE(model.ignored("h.3.attn.c_attn.bias").has_value());
}

TEST(Gpt2Config, RoundTrips) {
  EXPECT_EQ(gpt2::Gpt2Config::parse(config.write(), "test"), config);
  EXPECT_THROW(gpt2::Gpt2Config::parse("[]", "test"), InputError);
  EXPECT_THROW(gpt2::Gpt2Config::parse(R"({"n_embd": 8})", "test"), InputError);
  std::string other = config.write();
  other.replace(other.find("gelu_new"), 8, "relu");
  EXPECT_THROW(gpt2::Gpt2Config::parse(other, "test"), InputError);
  EXPECT_THROW((gpt2::Gpt2Config{.n_embd = 10, .n_head = 4}.validate()), InputError);
}

TEST(Gpt2, RefusesSequencesLongerThanItsPositionTable) {
  comm::Threads<>::run(1, {}, [](comm::Threads<>&) {
    const std::vector<std::int32_t> list(13);
    const TokenBatch batch{{list.data(), {13}}, {list.data(), {13}}, 1};
    EXPECT_THROW(Gpt2On<RunTimeSharded>(config).validate(batch, 13), InputError);
  });
}

}  // namespace
}  // namespace fsdp::test

namespace fsdp::testing {

INSTANTIATE_TYPED_TEST_SUITE_P(Gpt2, ModelSuite, test::Gpt2);

}  // namespace fsdp::testing
