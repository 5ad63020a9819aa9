// SPDX-License-Identifier: Apache-2.0
// The five forms of a schedule for one small example, quoted in docs/schedule_forms.md.
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/sharding/event_order.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/slots.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp::sharding {
namespace {

// A value that is not an action has its own row.
static_assert(name_of(static_cast<Action>(77)) == "?" && !computes(static_cast<Action>(77)));

const Names names_of_two_blocks{.units = {"embedding", "block 0", "block 1", "head"},
                                .groups = {"embedding", "block 0", "block 1", "head"}};

Problem two_blocks() {
  Problem problem;
  problem.units = {{.groups = {0}, .backward_needs_weights = false}, {.groups = {1}}, {.groups = {2}}, {.groups = {3}}};
  problem.groups.assign(4, {.elements = 100, .slot_elements = 100, .axes = {.shard = 2}});
  return problem;
}

std::string text_of_tasks(const Schedule& list) {
  std::string text = "\n";
  for (const Task& task : list) text += text_of(task, names_of_two_blocks) + "\n";
  return text;
}

/// One line for each operation: its queue, and the operations of other queues that it is the first in its queue to wait
/// for.
std::string text_of_works(const Schedule& placed, const Problem& problem) {
  constexpr std::array<const char*, Queues::queues> queues{"compute", "shard  ", "across", "keep", "sequence", "host"};
  std::array<std::vector<int>, Queues::queues> tasks;
  std::array<std::array<int, Queues::queues>, Queues::queues> waited{};
  std::string text = "\n";
  for (const QueuedWork& work : queued_works(placed, problem)) {
    const auto name = [&](int task) { return text_of(placed[static_cast<std::size_t>(task)], names_of_two_blocks); };
    text += std::string(queues[work.queue]) + "  " + name(work.task);
    for (std::size_t other = 0; other < Queues::queues; ++other) {
      int& known = waited[work.queue][other];
      if (other != work.queue && work.over[other] > known)
        text += ", after " + name(tasks[other][static_cast<std::size_t>(work.over[other]) - 1]);
      known = work.over[other];
    }
    tasks[work.queue].push_back(work.task);
    text += "\n";
  }
  return text;
}

TEST(FormsOfASchedule, MatchTheDocumentedExample) {
  const Rules rules = FullyShard<>{}.rules();
  EXPECT_TRUE(rules.hold == Hold::use && rules.prefetch_depth == 1 && rules.reduce_every_micro_batch);
  const Problem problem = two_blocks();
  const Schedule list = schedule_of(FullyShard<>{}, problem);
  EXPECT_EQ(text_of_tasks(list), R"(
gather embedding
gather block 0
forward embedding
release embedding
gather block 1
forward block 0
release block 0
gather head
forward block 1
loss head
release head
reduce head
gather block 0
backward block 1
release block 1
reduce block 1
backward block 0
release block 0
reduce block 0
backward embedding
reduce embedding
)");
  const Schedule placed = assign_slots(list, problem);
  EXPECT_EQ(slot_sizes(placed, problem), (SlotSizes{.weights = {100, 100}, .gradients = {100}}));
  EXPECT_EQ(first_race(placed, problem), Race{});
  EXPECT_EQ(text_of_works(placed, problem), R"(
shard    gather embedding
shard    gather block 0
compute  forward embedding, after gather embedding
shard    gather block 1, after forward embedding
compute  forward block 0, after gather block 0
shard    gather head, after forward block 0
compute  forward block 1, after gather block 1
compute  loss head, after gather head
shard    reduce head, after loss head
shard    gather block 0
compute  backward block 1, after reduce head
shard    reduce block 1, after backward block 1
compute  backward block 0, after reduce block 1
shard    reduce block 0, after backward block 0
compute  backward embedding, after reduce block 0
shard    reduce embedding, after backward embedding
)");
}

}  // namespace
}  // namespace fsdp::sharding
