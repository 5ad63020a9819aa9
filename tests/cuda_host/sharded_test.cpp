// SPDX-License-Identifier: Apache-2.0
/// User code on the user's own CUDA stream: its passes are ordered with the library's work, and captured with it in a
/// graph.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/checkpoint/shards_io.hpp>
#include <tessera/fsdp/sharded.hpp>

#include "on_doubles.hpp"
#include "support/residual_net.hpp"

namespace fsdp::testing::cuda_host {
namespace {

using device::Cuda;
using Weights = std::map<std::string, std::vector<float>>;

class CudaHost_sharded : public OnDoubles {};

constexpr int steps = 5;

const std::vector<Unit> units{{.name = "a", .parameters = {{.name = "a", .shape = {30, 7}}}},
                              {.name = "b", .parameters = {{.name = "b", .shape = {11}}}},
                              {.name = "c", .parameters = {{.name = "c", .shape = {5, 9}}}}};

/// Runs a pass in which every gradient is the weight, copied by `copy(from, to, bytes)`.
template <class Pass, class Copy>
void walk(Pass& pass, const Copy& copy) {
  while (const auto next = pass.next()) {
    const auto use = pass.enter();
    if (next->action == sharding::Action::forward) continue;
    copy(use.weight(0).data(), use.gradient(0).tensor.data(),
         static_cast<std::size_t>(use.weight(0).numel()) * sizeof(float));
  }
  pass.finish();
}

Weights on_the_cpu(int ranks) {
  Weights weights;
  comm::Threads<>::run(ranks, {}, [&](comm::Threads<>& communicator) {
    Sharded<Stack<FullyShard<>, comm::Threads<>, Fp32>> sharded(communicator, units);
    sharded.initialize(1);
    for (int step = 0; step < steps; ++step) {
      auto pass = sharded.train();
      walk(pass, [](const float* from, float* to, std::size_t bytes) { std::memcpy(to, from, bytes); });
      sharded.step(0, {.lr = 0.01});
    }
    const Weights found = test::net::weights(sharded);
    if (communicator.rank() == 0) weights = found;
  });
  return weights;
}

Weights on_her_stream(int ranks, bool graphs) {
  Weights weights;
  run_ranks(ranks, {}, [&](comm::Nccl<>& communicator) {
    cudaStream_t own = nullptr;
    ASSERT_EQ(cudaStreamCreateWithPriority(&own, cudaStreamNonBlocking, 0), cudaSuccess);
    {
      Cuda::Queue queue = Cuda::Queue::borrow(own);
      Sharded<Stack<FullyShard<>, comm::Nccl<>, Fp32>> sharded(communicator, units);
      sharded.initialize(1);
      const auto enqueue_pass = [&] {
        auto pass = sharded.train();
        pass.compute_on(queue);
        walk(pass, [own](const float* from, float* to, std::size_t bytes) {
          cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, own);
        });
      };
      Cuda::Graph graph;
      for (int step = 0; step < steps; ++step) {
        sharded.begin_step({.lr = 0.01});
        if (!graphs || step == 0) {
          enqueue_pass();
          sharded.update();
        } else {
          if (step == 1)
            graph = Cuda::capture(sharded.stream(), [&] {
              enqueue_pass();
              sharded.update();
            });
          graph.launch(sharded.stream());
        }
        sharded.end_step();
      }
      EXPECT_EQ(sharded.result().taken, steps);
      const Weights found = test::net::weights(sharded);
      if (communicator.rank() == 0) weights = found;
    }
    cudaStreamSynchronize(own);
    EXPECT_EQ(cudaStreamDestroy(own), cudaSuccess);
  });
  return weights;
}

TEST_F(CudaHost_sharded, RunsPassesOnAStreamOfTheHostProgramAndAsAGraph) {
  for (const int ranks : {1, 2}) {
    const Weights expected = on_the_cpu(ranks), queued = on_her_stream(ranks, false);
    EXPECT_EQ(on_her_stream(ranks, true), queued);
    for (const auto& [name, values] : expected)
      for (auto at = queued.at(name).begin(); const float value : values) EXPECT_NEAR(*at++, value, 1e-6) << name;
  }
}

/// Runs a step. Returns the numbers of calls of NCCL that have any registered buffer; all of `units` divide evenly.
template <class Sharding>
std::map<std::string, int> registered_calls(int ranks, const Sharding& sharding, const LendMemory& lend = nullptr) {
  const std::vector<Unit> even{{.name = "a", .parameters = {{.name = "a", .shape = {8, 8}}}},
                               {.name = "b", .parameters = {{.name = "b", .shape = {16}}}}};
  machine().reset(ranks);
  nccl().by_registered.clear();
  run_ranks(ranks, {}, [&](comm::Nccl<>& communicator) {
    Sharded<Stack<Sharding, comm::Nccl<>, Fp32>> sharded(communicator, even, sharding, {.lend = lend});
    sharded.initialize(1);
    auto pass = sharded.train();
    walk(pass, [&](const float* from, float* to, std::size_t bytes) {
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(sharded.stream()));
    });
    sharded.step(0, {.lr = 0.01});
    sharded.module().synchronize();
  });
  std::map<std::string, int> found = nccl().by_registered;
  std::erase_if(found, [](const auto& each) { return each.first.ends_with("0 registered"); });
  return found;
}

/// NCCL moves data without a copy only if both buffers are registered, and with that communicator.
TEST_F(CudaHost_sharded, BothBuffersOfEveryCollectiveAreRegistered) {
  using Calls = std::map<std::string, int>;
  const std::string world = "world, 2 registered", across = "split 0, 2 registered", shard = "split 1, 2 registered";
  const int gathers = 3, sums = 2;  // of each rank: backward keeps the last unit of forward
  EXPECT_EQ(registered_calls(1, FullyShard<>{}), Calls{});
  EXPECT_EQ(registered_calls(2, FullyShard<>{}), (Calls{{world, 2 * (gathers + sums)}}));
  EXPECT_EQ(registered_calls(4, HybridShard<FullyShard<>>{.group = 2}),
            (Calls{{across, 4 * 2}, {shard, 4 * (gathers + sums)}}));
  EXPECT_EQ(registered_calls(4, HybridShard<FullyShard<>, OptimizerAcross::sharded>{.group = 2}),
            (Calls{{across, 4 * (2 + 2)}, {shard, 4 * (gathers + sums)}}));
  EXPECT_EQ(registered_calls(4, FullyShard<ReshardAfterForward::to_group>{.group = 2}),
            (Calls{{world, 4 * (gathers - 1 + sums)}, {shard, 4}}));  // backward gathers in the group
  const auto lend = [](device::MemoryKind, std::int64_t bytes) {
    return std::shared_ptr<std::byte>(Cuda::allocate(bytes),
                                      [bytes](std::byte* data) { Cuda::deallocate(data, bytes); });
  };
  EXPECT_EQ(registered_calls(2, FullyShard<>{}, lend), Calls{}) << "the memory is the host program's";
}

/// Calls f(sharded) on one GPU. If main weights are separate copies, `frozen` parameters have none.
template <class Precision, class F>
void on_a_gpu(const std::vector<Unit>& of, F f, const std::vector<std::string>& frozen = {}) {
  run_ranks(1, {}, [&](comm::Nccl<>& communicator) {
    Sharded<Stack<FullyShard<>, comm::Nccl<>, Precision>> sharded(communicator, of, {},
                                                                  {.unit_options = {.frozen = frozen}});
    f(sharded);
    sharded.module().synchronize();
  });
}

TEST_F(CudaHost_sharded, InitialValuesAreCopiedToTheDeviceInPartsOnly) {
  constexpr std::int64_t large = (1 << 20) + 5;  // two parts
  const std::vector<Unit> of{{.name = "a", .parameters = {{.name = "a", .shape = {large}}}},
                             {.name = "b", .parameters = {{.name = "b", .shape = {3}}}}};
  on_a_gpu<Fp32>(of, [&](auto& sharded) {
    const int before = machine().calls()["cudaMemcpyAsync"];
    sharded.initialize(7);
    EXPECT_EQ(machine().calls()["cudaMemcpyAsync"] - before, 3);
    const Weights found = test::net::weights(sharded);
    const std::uint64_t key = mixed(7) ^ hashed(hash_seed, "a");
    for (const std::int64_t i : {std::int64_t{0}, std::int64_t{1 << 20} - 1, std::int64_t{1 << 20}, large - 1})
      EXPECT_EQ(found.at("a")[static_cast<std::size_t>(i)],
                static_cast<float>(Initial{}.deviation * optim::normal_at(key, i)))
          << i;
  });
}

TEST_F(CudaHost_sharded, AFillKeepsValuesThatItDoesNotWrite) {
  on_a_gpu<Fp32>(units, [&](auto& sharded) {
    sharded.fill([](const Parameter&, std::int64_t, std::span<float> values) { std::ranges::fill(values, 2.0f); });
    sharded.fill([](const Parameter& parameter, std::int64_t, std::span<float> values) {
      if (parameter.name == "b") values[3] = 5.0f;
    });
    Weights expected = {
        {"a", std::vector<float>(210, 2.0f)}, {"b", std::vector<float>(11, 2.0f)}, {"c", std::vector<float>(45, 2.0f)}};
    expected.at("b")[3] = 5.0f;
    EXPECT_EQ(test::net::weights(sharded), expected);
  });
}

/// Sets one of many large weights to `value`. Returns the error message about it.
template <class Precision>
std::string sentence_about(const std::string& name, std::int64_t element, float value,
                           const std::vector<std::string>& frozen = {}) {
  std::string sentence;
  const auto break_one = [&](auto& sharded) {
    sharded.fill([](const Parameter&, std::int64_t, std::span<float> values) { std::ranges::fill(values, 1e38f); });
    EXPECT_NO_THROW(train::require_finite(sharded.module(), sharded.optimizer()));
    sharded.fill([&](const Parameter& parameter, std::int64_t, std::span<float> values) {
      if (parameter.name == name) values[static_cast<std::size_t>(element)] = value;
    });
    try {
      train::require_finite(sharded.module(), sharded.optimizer());
    } catch (const DivergedError& error) {
      sentence = error.what();
    }
  };
  on_a_gpu<Precision>(units, break_one, frozen);
  return sentence;
}

TEST_F(CudaHost_sharded, DeviceFindsNonFiniteWeightsAndHostReportsThem) {
  const std::string end = "] is not finite; lower the learning rate, or look at the last steps' data";
  for (const float value : {INFINITY, -INFINITY, std::nanf("")}) {
    EXPECT_EQ(sentence_about<Fp32>("c", 44, value), "weight c[44" + end);
    EXPECT_EQ(sentence_about<Bf16Mixed>("a", 209, value), "weight a[209" + end);
    EXPECT_EQ(sentence_about<Bf16Mixed>("b", 10, value, {"b"}), "weight b[10" + end) << "which has bf16 alone";
  }
}

TEST_F(CudaHost_sharded, FindsNonFiniteStatesAndCopiesNoFiniteOnes) {
  on_a_gpu<Fp32>(units, [&](auto& sharded) {
    sharded.initialize(1);
    const int before = machine().calls()["cudaMemcpyAsync"];
    train::require_finite(sharded.module(), sharded.optimizer());
    EXPECT_EQ(machine().calls()["cudaMemcpyAsync"] - before, 1) << "the verdict";
    const Tensor<float> state = sharded.optimizer().states(1)[1].template as<float>();
    const float infinite = INFINITY;
    device::move<Cuda>(sharded.stream(), &infinite, state.data() + 7, 1);
    try {
      train::require_finite(sharded.module(), sharded.optimizer());
      ADD_FAILURE() << "an infinite state is accepted";
    } catch (const DivergedError& error) {
      EXPECT_EQ(std::string(error.what()).find("exp_avg_sq b[7] is not finite"), 0u) << error.what();
    }
  });
}

}  // namespace
}  // namespace fsdp::testing::cuda_host
