// SPDX-License-Identifier: Apache-2.0
// Tasks that move activations: a pass passes them to its caller, which executes them.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <support/errors.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/module/pass.hpp>

#include <support/small_llama.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

using Comm = comm::Threads<>;
using Model = Llama<Stack<FullyShard<>, Comm, Fp32, tiling::Untiled>>;

/// A model that reports a negative number of blocks.
struct FewerThanNoBlocks : Model {
  using Model::Model;
  int blocks() const { return -1; }
};
TEST(UnitsOf, RefusesAModelWithANegativeNumberOfBlocks) {
  EXPECT_EQ(input_error_of([] { units_of(FewerThanNoBlocks(uneven_llama(1))); }),
            "model: it has -1 blocks; blocks() is at least 0");
}
using Base = ShardedModel<Model>::Stack;

/// Records the tasks that a pass passes to its caller.
struct Given {
  std::vector<std::string> list = {};

  ActivationWork work() {
    return {
        .execute =
            [](void* state, const sharding::Task& task) {
              static_cast<Given*>(state)->list.push_back(text_of(task, {}) + ":" + std::to_string(task.micro_batch));
            },
        .state = this};
  }
};

template <class F>
void on_two_ranks(F f) {
  Comm::run(2, {.checks = true}, [&](Comm& communicator) {
    ShardedModel<Model> module(communicator, Model(uneven_llama(), UnitOptions{.recompute = true, .offload_inputs = 1}),
                               FullyShard<>{},
                               {.size = {.sequence_length = 4, .micro_batches = 2}, .activation_bytes = 0});
    optim::initialize(module, 1);
    f(module);
  });
}

/// Executes the next `count` computations of a pass; backward only zeroes the gradients.
void compute(Pass<Base>& pass, int count) {
  for (; count > 0; --count) {
    Use<Base> use = pass.enter();
    if (use.task().action != sharding::Action::forward)
      for (std::size_t i = 0; i < 30; ++i) try {
          (void)use.zeroed(i);
        } catch (const LogicError&) {
          break;  // the unit has no more tensors
        }
  }
}

std::vector<std::string> moves_of(int micro_batch) {
  const std::string end = ":" + std::to_string(micro_batch);
  return {"send-input unit 1" + end, "send-input unit 2" + end, "fetch-input unit 2" + end, "fetch-input unit 1" + end};
}

TEST(ActivationWork, IsCalledOnlyForMicroBatchesThatAreComputed) {
  on_two_ranks([](auto& module) {
    Given given;
    Pass<Base> pass(module, sharding::Pass::train, 0, 0, {}, Reductions::made, given.work());
    compute(pass, 9);
    EXPECT_EQ(given.list, moves_of(0));
    pass.skip();
    pass.finish();
    EXPECT_EQ(given.list, moves_of(0)) << "the second was skipped";
  });
}

TEST(ActivationWork, IsNotCalledAfterAPassIsForfeited) {
  on_two_ranks([](auto& module) {
    Given given;
    Pass<Base> pass(module, sharding::Pass::train, 0, 0, {}, Reductions::made, given.work());
    compute(pass, 2);
    pass.forfeit();
    EXPECT_EQ(given.list, (std::vector<std::string>{"send-input unit 1:0", "send-input unit 2:0"}));
  });
}

TEST(ActivationWork, IsRequiredIfThePassMovesActivations) {
  on_two_ranks([](auto& module) {
    EXPECT_EQ(error_of<LogicError>([&] { const Pass<Base> pass(module, sharding::Pass::train); }),
              "pass: send-input block 0 moves activations, which is the caller's work; give ActivationWork, or leave "
              "out what asks for it (UnitOptions::offload_inputs, Unit::stages)");
    EXPECT_NO_THROW(Pass<Base>(module, sharding::Pass::evaluate).forfeit());
  });
}

TEST(OffloadInputs, IsRefusedOutsideAModelsChainOfBlocks) {
  Comm::run(1, {}, [](Comm& communicator) {
    const std::vector<Unit> units(3, Unit{.name = "unit", .parameters = {{"w", {4}}}});
    EXPECT_INPUT_ERROR(
        (ShardedModule<Base>(
            communicator, units, FullyShard<>{},
            {.passes = {.unit_options = {.recompute = true, .offload_inputs = 1}, .orders = {chain(3)}}})),
        "order: inputs in host memory (UnitOptions::offload_inputs) are those of a model's chain of blocks; leave");
  });
}

}  // namespace
}  // namespace fsdp::test
