// SPDX-License-Identifier: Apache-2.0
// Values returned by user-defined types are validated on entry: invalid values are refused on all ranks, before a step.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/sharded.hpp>
#include <tessera/fsdp/precision/policies.hpp>

#include <support/temporary_folder.hpp>

namespace fsdp {
namespace {

using Comm = comm::Threads<>;
const std::vector<Unit> units{
    {.name = "only", .parameters = {{.name = "w", .shape = {64}}, {.name = "v", .shape = {64}}}}};

/// Expects that constructing a Sharded throws this error on both ranks.
template <class Tested>
void expect_refused(std::string_view found, const typename Tested::Strategy& strategy = {},
                    const typename Tested::Settings& settings = {}) {
  Comm::run(2, {},
            [&](Comm& communicator) { EXPECT_INPUT_ERROR(Tested(communicator, units, strategy, settings), found); });
}

/// Flat, with the tensors in reverse order on one rank. Sizes and counts are the same.
struct TurnedOnARank {
  static constexpr std::string_view name = "turned";
  static inline thread_local bool turns = false;
  std::vector<buffer::Layout> build(std::span<const buffer::TensorGroup> groups, int parts) const {
    std::vector<buffer::Layout> layouts = buffer::Flat{}.build(groups, parts);
    if (turns) std::swap(layouts.front().offsets.front(), layouts.front().offsets.back());
    return layouts;
  }
};
TEST(PolicyValues, LayoutsMustBeTheSameOnAllRanks) {
  using Tested = Sharded<Stack<WithLayout<FullyShard<>, TurnedOnARank>, Comm, Fp32>>;
  Comm::run(2, {}, [&](Comm& communicator) {
    TurnedOnARank::turns = communicator.rank() == 1;
    const std::string said = test::input_error_of([&] { Tested(communicator, units); });
    EXPECT_TRUE(said.starts_with("sharding: rank 1 has another layout than rank 0; ")) << said;
  });
}

TEST(PolicyValues, InvalidStrategyParametersAndLentMemoryAreRefused) {
  expect_refused<Sharded<Stack<Zero3, Comm, Fp32>>>("sharding: a strategy gathers -1 computations ahead",
                                                    Zero3{.prefetch_depth = -1});
  expect_refused<Sharded<Stack<Zero3, Comm, Fp32>>>("sharding: a bound of -7 live elements (Rules::live_bound)",
                                                    Zero3{.live_bound = -7});
  expect_refused<Sharded<Stack<Zero3, Comm, Fp32>>>("sharding: a persistence threshold of -1 elements",
                                                    Zero3{.persistence_threshold = -1});
  ShardedSettings<> settings;
  settings.lend = [](device::MemoryKind, std::int64_t bytes) {
    const auto room = static_cast<std::size_t>(round_up(bytes, device::alignment) + device::alignment);
    const std::shared_ptr<void> whole(std::aligned_alloc(device::alignment, room), &std::free);
    return std::shared_ptr<std::byte>(whole, static_cast<std::byte*>(whole.get()) + 4);
  };
  expect_refused<Sharded<Stack<Zero3, Comm, Fp32>>>("that LendMemory gave for weights do not begin at a multiple of 64",
                                                    {}, settings);
}

struct Unpadded : Plain<bf16> {  // blocks of 6 bytes
  static constexpr std::int64_t block = 3;
};

TEST(PolicyValues, OptimizerStatesMustHaveDistinctNamesAndBlocksOfWords) {
  const Parameter parameter{.name = "w", .shape = {3}};
  const auto require = [&](std::vector<optim::StateSpec> states) {
    optim::require_state_names("mine", parameter, states);
  };
  EXPECT_NO_THROW(require({"m", "v"}));
  const auto said = [&](std::vector<optim::StateSpec> states) {
    return test::input_error_of([&] { require(states); });
  };
  EXPECT_TRUE(said({"m", "m"}).starts_with("the optimizer mine gives state 0 of 'w' the name 'm'; checkpoints"));
  EXPECT_TRUE(said({"m", ""}).starts_with("the optimizer mine gives state 1 of 'w' the name ''; checkpoints"));
  EXPECT_TRUE(said({"m.v"}).starts_with("the optimizer mine gives state 0 of 'w' the name 'm.v'; checkpoints"));
  EXPECT_TRUE(said({optim::StateSpec("m", optim::state_format<Unpadded>)})
                  .starts_with("the optimizer mine encodes state 'm' of 'w' as bf16, whose 3 elements are 6 bytes"));
}

/// An operation with invalid costs and scratch.
struct Impossible {
  static constexpr std::string_view name = "impossible";
  std::int64_t bytes = 0, scratch_bytes = 0;
  auto tensors() const { return std::tie(); }
  device::Cost cost() const { return {.bytes = bytes}; }
};
std::int64_t scratch(const device::Cpu::Planner&, const Impossible& op) { return op.scratch_bytes; }
[[maybe_unused]] void run(device::Cpu::Stream&, const Impossible&, device::Scratch) {}

TEST(PolicyValues, NegativeCostsAndScratchOfAnOperationAreRefused) {
  auto arena = device::Meta::Arena::unbounded();
  device::Meta::Stream stream(arena, 1);
  device::enqueue(stream, Impossible{.bytes = 5, .scratch_bytes = 64});
  EXPECT_THROW(device::enqueue(stream, Impossible{.bytes = -5}), InputError);
  EXPECT_THROW(device::enqueue(stream, Impossible{.scratch_bytes = -128}), MemoryError);
}

}  // namespace
}  // namespace fsdp
