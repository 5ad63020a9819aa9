// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether events order what a schedule does where the device and each communicator have a queue of their own, as over
/// NCCL: the communicators of both axes of a mesh then run side by side.
///
/// Every wait is for an event of an earlier task, and all ranks have the same list, so that no two ranks wait for each
/// other. What is left to show is that of two tasks which use the same memory, and one of which writes it, the later
/// one waits for the earlier one. The waits are those of ParameterGroup and GroupTasks (tessera/fsdp/module), and of
/// OffloadedInputs and SequenceExchanges (tessera/fsdp/execution), which have a queue each too.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <tessera/fsdp/sharding/input_holders.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/verdict.hpp>

namespace fsdp::sharding {

/// Two tasks, by number, that use the same memory without an event between them.
struct Race {
  int first = no_task;   ///< the earlier one
  int second = no_task;  ///< the later one
  friend constexpr bool operator==(const Race&, const Race&) = default;
};

/// The queues of a rank whose device and communicators have one each.
struct Queues {
  /// The device's, those of the communicators that GroupAxes names, that of the ranks that share a sequence, and that
  /// of copies to host memory and back.
  enum Kind : std::size_t { compute, shard, across, keep, sequence, host, queues };
};

/// What a task puts into a queue, and what it waits for.
struct QueuedWork {
  int task = no_task;                         ///< its number in the schedule
  Queues::Kind queue = Queues::compute;       ///< works of a queue run one after the other
  std::array<int, Queues::queues> over = {};  ///< by queue: how many of its works are over when this one begins
  friend constexpr bool operator==(const QueuedWork&, const QueuedWork&) = default;
};

namespace detail {

/// Follows a placed list and keeps, for each queue, how much of every queue is over when its next work starts.
class EventOrder {
 public:
  /// `works`: where to list what the tasks enqueue, or nullptr.
  constexpr EventOrder(const Schedule& schedule, const Problem& problem, std::vector<QueuedWork>* works = nullptr)
      : schedule_(schedule),
        problem_(problem),
        works_(works),
        groups_(problem.groups.size()),
        holders_(problem),
        inputs_(problem.units.size()) {}

  constexpr Race run() {
    for (at_ = 0; at_ < static_cast<int>(schedule_.size()) && race_ == Race{}; ++at_) execute();
    return race_;
  }

 private:
  using Queue = Queues::Kind;
  using enum Queues::Kind;
  /// The number of works of each queue that are over when an event has happened.
  using Event = std::array<int, queues>;

  struct Access {
    int task = no_task;
    int number = 0;  ///< among the works of its queue
  };
  /// Who used some memory last: one write, and the reads of each queue since.
  struct Memory {
    Queue writer = compute;
    Access written;
    std::array<Access, queues> read;
  };
  struct Slot {
    Memory memory;
    Event free = {};
  };
  /// What an exchange moves, and where to.
  struct Moved {
    Memory sent, received;
    Event done = {};
  };
  struct Group {
    Memory shards, kept_part, sum;
    Slot weights, gradient;  ///< where its tasks name no slot
    int weight_slot = -1, gradient_slot = -1;
    Event crossed = {}, gathered = {}, kept = {}, reduced = {};
  };

  /// A unit's input in host memory, and where its backward finds it.
  struct Input {
    Memory in_host;
    int buffer = -1;
    Event fetched = {};
  };

  constexpr const Task& task() const { return schedule_[static_cast<std::size_t>(at_)]; }
  constexpr const GroupFacts& facts() const { return problem_.group(task().index); }
  constexpr Group& group(int index) { return groups_[static_cast<std::size_t>(index)]; }
  constexpr Slot& weights(Group& of) { return slot(weight_slots_, of.weight_slot, of.weights); }
  constexpr Slot& gradient(Group& of) { return slot(gradient_slots_, of.gradient_slot, of.gradient); }
  static constexpr Slot& slot(std::vector<Slot>& slots, int number, Slot& own) {
    if (number < 0) return own;
    const auto index = static_cast<std::size_t>(number);
    if (index >= slots.size()) slots.resize(index + 1);
    return slots[index];
  }

  constexpr void wait(Queue queue, const Event& event) {
    for (std::size_t other = 0; other < queues; ++other)
      clocks_[queue][other] = std::max(clocks_[queue][other], event[other]);
  }
  /// Adds the current task to the end of a queue.
  constexpr Event enqueue(Queue queue) {
    if (works_ != nullptr) works_->push_back({.task = at_, .queue = queue, .over = clocks_[queue]});
    ++clocks_[queue][queue];
    return clocks_[queue];
  }
  constexpr Event record(Queue queue) const { return clocks_[queue]; }

  /// The current task, which was added to `queue`, reads or writes.
  /// @{
  constexpr void reads(Queue queue, Memory& memory) {
    follows(queue, memory.writer, memory.written);
    memory.read[queue] = {.task = at_, .number = clocks_[queue][queue]};
  }
  constexpr void writes(Queue queue, Memory& memory) {
    follows(queue, memory.writer, memory.written);
    for (std::size_t reader = 0; reader < queues; ++reader)
      follows(queue, static_cast<Queue>(reader), memory.read[reader]);
    memory = {.writer = queue, .written = {.task = at_, .number = clocks_[queue][queue]}, .read = {}};
  }
  constexpr void follows(Queue queue, Queue other, const Access& before) {
    if (before.task != no_task && clocks_[queue][other] < before.number && race_ == Race{})
      race_ = {.first = before.task, .second = at_};
  }
  /// @}

  constexpr void execute() {
    switch (task().action) {
      case Action::gather:
      case Action::gather_in_group: return gather(group(task().index));
      case Action::gather_across: return gather_across(group(task().index));
      case Action::forward:
      case Action::loss:
      case Action::backward: return compute_unit();
      case Action::keep: return keep_part(group(task().index));
      case Action::release: weights(group(task().index)).free = record(compute); return;
      case Action::open_gradient: return open_gradient(group(task().index));
      case Action::reduce: return reduce(group(task().index));
      case Action::reduce_across: return reduce_across(group(task().index));
      case Action::close_gradient: gradient(group(task().index)).free = group(task().index).reduced; return;
      case Action::send_input: return send_input(inputs_[static_cast<std::size_t>(task().index)]);
      case Action::fetch_input: return fetch_input(inputs_[static_cast<std::size_t>(task().index)]);
      case Action::exchange: return exchange();
    }
  }

  constexpr void gather(Group& own) {
    const bool in_group = task().action == Action::gather_in_group;
    const Queue queue = in_group ? keep : shard;
    own.weight_slot = task().slot;
    wait(queue, in_group ? own.kept : own.crossed);
    wait(queue, weights(own).free);
    own.gathered = enqueue(queue);
    reads(queue, in_group ? own.kept_part : own.shards);
    writes(queue, weights(own).memory);
  }
  constexpr void gather_across(Group& own) {
    own.crossed = enqueue(across);
    writes(across, own.shards);
  }
  constexpr void keep_part(Group& own) {
    own.kept = enqueue(compute);
    reads(compute, weights(own).memory);
    writes(compute, own.kept_part);
  }
  constexpr void compute_unit() {
    const std::vector<int>& uses = problem_.unit(task().index).groups;
    if (problem_.uses_weights(task()))
      for (const int index : uses)
        wait(compute, problem_.group(index).resident ? group(index).crossed : group(index).gathered);
    wait_for_inputs();
    if (problem_.unit(task().index).stages.parts > 0 && task().action != Action::loss)
      compute_stage();
    else
      enqueue(compute);
    use_inputs();
    for (const int index : uses) {
      Group& own = group(index);
      const GroupFacts& of = problem_.group(index);
      if (problem_.uses_weights(task())) reads(compute, of.resident ? own.shards : weights(own).memory);
      if (problem_.writes_gradients(task()) && of.trainable)
        writes(compute, of.slot_elements == 0 ? own.sum : gradient(own).memory);
    }
  }
  /// The buffer that a computation reads its input from, and the one that it writes the next unit's to; -1: none.
  /// @{
  constexpr int read_buffer() const {
    const bool fetched = task().action == Action::backward && problem_.offloads(task().index);
    return fetched ? inputs_[static_cast<std::size_t>(task().index)].buffer : holders_.in_forward(task().index);
  }
  constexpr int written_buffer() const {
    return task().action == Action::forward ? holders_.in_forward(task().index + 1) : -1;
  }
  /// @}
  constexpr void wait_for_inputs() {
    if (task().action == Action::backward) wait(compute, inputs_[static_cast<std::size_t>(task().index)].fetched);
    if (const int buffer = written_buffer(); buffer >= 0)
      wait(compute, buffers_[static_cast<std::size_t>(buffer)].free);
  }
  constexpr void use_inputs() {
    if (const int buffer = read_buffer(); buffer >= 0)
      reads(compute, buffers_[static_cast<std::size_t>(buffer)].memory);
    if (const int buffer = written_buffer(); buffer >= 0)
      writes(compute, buffers_[static_cast<std::size_t>(buffer)].memory);
  }
  constexpr void send_input(Input& input) {
    Slot& buffer = buffers_[static_cast<std::size_t>(task().slot)];
    wait(host, record(compute));
    buffer.free = enqueue(host);
    reads(host, buffer.memory);
    writes(host, input.in_host);
  }
  constexpr void fetch_input(Input& input) {
    input.buffer = task().slot;
    wait(host, record(compute));
    input.fetched = enqueue(host);
    reads(host, input.in_host);
    writes(host, buffers_[static_cast<std::size_t>(task().slot)].memory);
  }
  /// A stage, which waits for the exchanges of what it reads.
  constexpr void compute_stage() {
    const std::vector<Stage> stages = stages_of(problem_.unit(task().index).stages);
    const Stage& stage = stages[static_cast<std::size_t>(task().stage)];
    for (const Stage& exchange : stages)
      if (reads_from(stage, exchange)) wait(compute, moved(exchange).done);
    enqueue(compute);
    for (const Stage& exchange : stages) {
      if (reads_from(stage, exchange)) reads(compute, moved(exchange).received);
      if (exchanges(exchange.step) && sends_by(stage, exchange)) writes(compute, moved(exchange).sent);
    }
  }
  constexpr void exchange() {
    const std::vector<Stage> stages = stages_of(problem_.unit(task().index).stages);
    Moved& own = moved(stages[static_cast<std::size_t>(task().stage)]);
    wait(sequence, record(compute));
    own.done = enqueue(sequence);
    reads(sequence, own.sent);
    writes(sequence, own.received);
  }
  /// The buffers of an exchange: two of each kind, which the parts of all units use in turn.
  constexpr Moved& moved(const Stage& exchange) {
    return moved_[2 * static_cast<std::size_t>(exchange.step) + static_cast<std::size_t>(exchange.part % 2)];
  }
  constexpr void open_gradient(Group& own) {
    own.gradient_slot = task().slot;
    wait(compute, gradient(own).free);
  }
  constexpr void reduce(Group& own) {
    const bool in_place = facts().slot_elements == 0;
    if (in_place && facts().across != Across::nothing) return;  // reduce_across does it
    const Queue queue = in_place ? across : shard;
    wait(queue, record(compute));
    own.reduced = enqueue(queue);
    if (!in_place) reads(queue, gradient(own).memory);
    writes(queue, own.sum);
  }
  constexpr void reduce_across(Group& own) {
    wait(across, facts().slot_elements == 0 ? record(compute) : own.reduced);
    own.reduced = enqueue(across);
    writes(across, own.sum);
  }

  const Schedule& schedule_;
  const Problem& problem_;
  std::vector<QueuedWork>* works_;
  std::vector<Group> groups_;
  std::vector<Slot> weight_slots_, gradient_slots_;
  InputHolders holders_;  ///< for the buffers in forward alone
  std::vector<Input> inputs_;
  std::array<Slot, input_buffers> buffers_ = {};
  std::array<Moved, 20> moved_ = {};       ///< of each Step, two
  std::array<Event, queues> clocks_ = {};  ///< by queue: what is over when its next work starts
  int at_ = 0;                             ///< the current task
  Race race_;
};

}  // namespace detail

/// Returns the first two tasks of a placed list that use the same memory on queues of their own without an event
/// between them; a Race of no tasks if there are none. `judge` must accept the list.
constexpr Race first_race(const Schedule& placed, const Problem& problem) {
  return detail::EventOrder(placed, problem).run();
}

/// Returns the works of a placed list on its queues, in the order in which the host enqueues them. `first_race` must
/// find none in the list.
constexpr std::vector<QueuedWork> queued_works(const Schedule& placed, const Problem& problem) {
  std::vector<QueuedWork> works;
  detail::EventOrder(placed, problem, &works).run();
  return works;
}

}  // namespace fsdp::sharding
