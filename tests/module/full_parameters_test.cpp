// SPDX-License-Identifier: Apache-2.0
// Scoped access to unsharded parameters, for initialisation and inspection.

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/module/host_weights.hpp>

#include <support/errors.hpp>
#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

using Comm = comm::Threads<>;

template <class Sharding, class Precision, class F>
void with_module(int ranks, Sharding sharding, F f) {
  using Model = Llama<Stack<Sharding, Comm, Precision, tiling::Untiled>>;
  Comm::run(ranks, {.checks = true}, [&](Comm& communicator) {
    ShardedModel<Model> module(communicator, Model(uneven_llama()), sharding,
                               {.size = {.sequence_length = 4}, .activation_bytes = 0});
    optim::initialize(module, 1);
    f(module);
  });
}

using Fsdp2 = Llama<Stack<FullyShard<>, Comm, Bf16Mixed, tiling::Untiled>>;
template <class F>
concept Reads = requires(ShardedModel<Fsdp2>& module, F f) {
  with_full_parameters(module, {"*"}, f);
};
static_assert(Reads<void (*)(const Parameter&, Tensor<const float>)>);
static_assert(!Reads<void (*)(const Parameter&, Tensor<float>)>, "what is read is not to be written");

/// The expected initial value of an element.
float initial(const Parameter& parameter, std::int64_t i) {
  if (parameter.initial == nn::Initial::ones) return 1.0f;
  const std::uint64_t key = mixed(1) ^ hashed(hash_seed, parameter.name);
  return static_cast<float>(0.02 * optim::normal_at(key, i));
}

template <class Sharding, class Precision>
void reads_and_writes(int ranks, Sharding sharding) {
  with_module<Sharding, Precision>(ranks, sharding, [](auto& module) {
    int seen = 0;
    with_full_parameters(module, {"*"}, [&](const Parameter& parameter, Tensor<const float> whole) {
      ++seen;
      EXPECT_EQ(whole.shape(), parameter.shape);
      for (std::int64_t i = 0; i < whole.numel(); ++i) ASSERT_EQ(whole[i], initial(parameter, i)) << parameter.name;
    });
    EXPECT_EQ(seen, 30);

    const std::int64_t resting = module.ledger().current()[0];
    const auto half = [](const Parameter&, Tensor<float> whole) {
      for (std::int64_t i = 0; i < whole.numel(); ++i) whole[i] *= 0.5f;
    };
    with_full_parameters(module, {"*.mlp.*"}, half, Access::write);
    EXPECT_EQ(module.ledger().current()[0], resting);
    for (const auto& piece : module.shards()) {
      const float factor = piece.parameter->name.find(".mlp.") != std::string::npos ? 0.5f : 1.0f;
      for (std::int64_t i = 0; i < piece.main.numel(); ++i) {
        ASSERT_EQ(piece.main[i], factor * initial(*piece.parameter, piece.begin + i)) << piece.parameter->name;
        using Compute = typename std::remove_reference_t<decltype(module)>::Compute;
        ASSERT_EQ(static_cast<float>(piece.model[i]), static_cast<float>(Compute(piece.main[i])));
      }
    }
  });
}

TEST(FullParameters, ReadAndWriteWholeTensors) {
  for (const int ranks : {1, 3}) reads_and_writes<FullyShard<>, Bf16Mixed>(ranks, {});
  reads_and_writes<HybridShard<Zero3, OptimizerAcross::sharded>, Fp32>(4, {.group = 2});
}

TEST(FullParameters, WritesThatDifferBetweenRanksAreAnErrorOnAllRanks) {
  with_module<FullyShard<>, Bf16Mixed>(3, {}, [](auto& module) {
    const int rank = module.communicator().rank();
    const auto write = [&](const Parameter&, Tensor<float> whole) { whole[0] = static_cast<float>(rank / 2); };
    SCOPED_TRACE(rank);
    EXPECT_INPUT_ERROR(with_full_parameters(module, {"*norm*"}, write, Access::write), "rank 2 wrote other values of ");
  });
}

/// Replicas.BroadcastingOneRanksWeightsMakesReplicasEqual tests float weights and replicas.
TEST(FullParameters, MayBeWrittenByOneRankForAll) {
  with_module<FullyShard<>, Bf16Mixed>(3, {}, [](auto& module) {
    const int rank = module.communicator().rank();
    const auto write = [&](const Parameter&, Tensor<float> whole) {
      for (std::int64_t i = 0; i < whole.numel(); ++i)
        whole[i] = static_cast<float>(rank) + 0.001f * static_cast<float>(i);
    };
    with_full_parameters(module, {"*norm*"}, write, Access::write, 1);
    for (const auto& piece : module.shards()) {
      if (piece.parameter->name.find("norm") == std::string::npos) continue;
      for (std::int64_t i = 0; i < piece.main.numel(); ++i) {
        using Compute = typename std::remove_reference_t<decltype(module)>::Compute;
        const float expected = 1.0f + 0.001f * static_cast<float>(piece.begin + i);
        ASSERT_EQ(piece.main[i], expected);
        ASSERT_EQ(static_cast<float>(piece.model[i]), static_cast<float>(Compute(expected)));
      }
    }
    EXPECT_THROW(with_full_parameters(module, {"*norm*"}, write, Access::write, 3), InputError);
  });
}

TEST(FullParameters, ANameThatMatchesNothingIsAnError) {
  EXPECT_THROW((with_module<FullyShard<>, Bf16Mixed>(
                   2, {}, [](auto& module) { with_full_parameters(module, {"nothing"}, [](auto&&...) {}); })),
               InputError);
}

}  // namespace
}  // namespace fsdp::test
