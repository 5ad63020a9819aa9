// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that events order the tasks of a schedule if the device and each communicator have a separate queue, as with
/// NCCL: the communicators of both axes of a mesh then run concurrently.
///
/// Every wait is for an event of an earlier task, and all ranks have the same schedule, so no deadlock between ranks is
/// possible. What remains to be checked is the absence of races: if two tasks use the same memory and one of them
/// writes it, the later task must wait for the earlier one. The waits are those of ParameterGroup and GroupTasks
/// (tessera/fsdp/module), and of OffloadedInputs and SequenceExchanges (tessera/fsdp/execution), which also have one
/// queue each.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <tessera/fsdp/sharding/actions.hpp>
#include <tessera/fsdp/sharding/check_result.hpp>
#include <tessera/fsdp/sharding/input_holders.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// Two tasks, by their number in the schedule, that use the same memory without an event between them.
struct Race {
  int first = no_task;   ///< number of the earlier task; no_task: there is no race
  int second = no_task;  ///< number of the later task; no_task: there is no race
  friend constexpr bool operator==(const Race&, const Race&) = default;
};

/// The work that a task enqueues, and the work that it waits for.
struct QueuedWork {
  int task = no_task;                    ///< its number in the schedule
  Queues::Kind queue = Queues::compute;  ///< its queue; the work of a queue runs in order
  /// For each queue: number of its work items that have finished when this one begins.
  std::array<int, Queues::queues> over = {};
  friend constexpr bool operator==(const QueuedWork&, const QueuedWork&) = default;
};

namespace detail {

/// Simulates a placed schedule. For each queue it tracks, as a vector clock, how many work items of every queue have
/// finished when the queue's next item starts.
class EventOrder {
 public:
  /// `works`: the list that receives the work items that the tasks enqueue, or nullptr.
  constexpr EventOrder(const Schedule& schedule, const Problem& problem, std::vector<QueuedWork>* works = nullptr)
      : schedule_(schedule),
        problem_(problem),
        works_(works),
        groups_(problem.groups.size()),
        inputs_(problem.units.size()),
        holders_(problem) {}

  constexpr Race run() {
    for (at_ = 0; at_ < static_cast<int>(schedule_.size()) && race_.second == no_task; ++at_) {
      task_ = &schedule_[static_cast<std::size_t>(at_)];
      execute();
    }
    return race_;
  }

 private:
  using Queue = Queues::Kind;
  using enum Queues::Kind;
  /// A vector clock: for each queue, the number of work items that have finished when an event has happened.
  using Event = std::array<int, queues>;

  struct Access {
    int task = no_task;
    int number = 0;  ///< number of the work item in its queue
  };
  /// The latest accesses to a piece of memory: the last write, and the last read of each queue since then.
  struct Use {
    Queue writer = compute;
    Access written;
    Access read[queues];
  };
  struct Slot {
    Use use;
    Event free = {};
  };
  /// The send and receive buffers of an exchange, and its completion event.
  struct Moved {
    Use sent, received;
    Event done = {};
  };
  /// The slot that a group or an input acquired last: its number, or a private slot if its tasks specify no number.
  struct Taken {
    int number = -1;
    Slot own;
  };
  /// A group, or a unit's input.
  struct Subject {
    std::array<Use, static_cast<std::size_t>(Memory::slot)> memory;
    std::array<Taken, static_cast<std::size_t>(SlotKind::input) + 1> slots;
    std::array<Event, static_cast<std::size_t>(Happened::computed)> events = {};

    constexpr Event& operator[](Happened what) { return events[static_cast<std::size_t>(what)]; }
  };

  constexpr Subject& group(int index) { return groups_[static_cast<std::size_t>(index)]; }
  constexpr Subject& input(int unit) { return inputs_[static_cast<std::size_t>(unit)]; }
  static constexpr int& number_of(Subject& of, SlotKind kind) {
    return of.slots[static_cast<std::size_t>(kind)].number;
  }
  constexpr Slot& slot(Subject& of, SlotKind kind) {
    const int number = number_of(of, kind);
    return number < 0 ? of.slots[static_cast<std::size_t>(kind)].own : slot(kind, number);
  }
  constexpr Slot& slot(SlotKind kind, int number) {
    std::vector<Slot>& slots = slots_[static_cast<std::size_t>(kind)];
    const auto index = static_cast<std::size_t>(number);
    if (index >= slots.size()) slots.resize(index + 1);
    return slots[index];
  }

  constexpr void wait(Queue queue, const Event& event) {
    int* clock = clocks_[queue].data();
    const int* over = event.data();
    for (std::size_t other = 0; other < queues; ++other)
      if (clock[other] < over[other]) clock[other] = over[other];
  }
  /// Adds the current task to the end of a queue.
  constexpr Event enqueue(Queue queue) {
    if (works_ != nullptr) works_->push_back({.task = at_, .queue = queue, .over = clocks_[queue]});
    ++clocks_[queue][queue];
    return clocks_[queue];
  }
  /// Returns an event of a group or of an input.
  constexpr const Event& event(Subject& of, Happened what) {
    return what == Happened::computed ? clocks_[compute] : of[what];
  }

  /// Records that the current task, which was added to `queue`, reads or writes `memory`.
  /// @{
  constexpr void reads(Queue queue, Use& memory) {
    follows(queue, memory.writer, memory.written);
    memory.read[queue] = {.task = at_, .number = clocks_[queue][queue]};
  }
  constexpr void writes(Queue queue, Use& memory) {
    follows(queue, memory.writer, memory.written);
    for (std::size_t reader = 0; reader < queues; ++reader)
      follows(queue, static_cast<Queue>(reader), memory.read[reader]);
    memory = {.writer = queue, .written = {.task = at_, .number = clocks_[queue][queue]}, .read = {}};
  }
  constexpr void follows(Queue queue, Queue other, const Access& before) {
    if (before.task != no_task && clocks_[queue][other] < before.number && race_.second == no_task)
      race_ = {.first = before.task, .second = at_};
  }
  /// @}

  constexpr void execute() {
    switch (facts_of(task_->action).kind) {
      case ActionKind::on_group: return move(group(task_->index), problem_.group(task_->index).slot_elements == 0);
      case ActionKind::input_copy: return move(input(task_->index), false);
      case ActionKind::computation: return compute_unit();
      case ActionKind::exchange: return exchange();
    }
  }

  /// Simulates a task as its row of the action table describes. `in_place`: the group's gradient has no slot:
  /// computations write directly to its sum, which is reduced once, over the outer axis if there is one.
  constexpr void move(Subject& own, bool in_place) {
    const ActionFacts& facts = facts_of(task_->action);
    Queue queue = facts.queue;
    Happened after = facts.after;
    bool reads_slot = facts.reads == Memory::slot;
    if (in_place && facts.records == Happened::reduced) {
      if (queue == shard && problem_.group(task_->index).across != Across::nothing) return;  // reduce_across does it
      queue = across;
      after = Happened::computed;
      reads_slot = false;
    }
    if (facts.takes_slot || facts.kind == ActionKind::input_copy) number_of(own, facts.slot) = task_->slot;
    Slot& used = slot(own, facts.slot);
    if (queue != queues) wait(queue, event(own, after));
    if (facts.takes_slot) wait(queue == queues ? compute : queue, used.free);
    if (queue != queues) {
      const Event done = enqueue(queue);
      if (facts.records != Happened::nothing) own[facts.records] = done;
      if (reads_slot) reads(queue, used.use);
      if (facts.reads != Memory::none && facts.reads != Memory::slot) reads(queue, memory(own, facts.reads));
      if (facts.writes != Memory::none)
        writes(queue, facts.writes == Memory::slot ? used.use : memory(own, facts.writes));
    }
    if (facts.frees_slot) used.free = event(own, facts.frees_after);
  }
  static constexpr Use& memory(Subject& own, Memory which) { return own.memory[static_cast<std::size_t>(which)]; }

  constexpr void compute_unit() {
    const auto uses = each(problem_.unit(task_->index).groups);
    if (problem_.uses_weights(*task_))
      for (const int index : uses)
        wait(compute, group(index)[problem_.group(index).resident ? Happened::crossed : Happened::gathered]);
    wait_for_inputs();
    if (problem_.unit(task_->index).stages.parts > 0 && task_->action != Action::loss)
      compute_stage();
    else
      enqueue(compute);
    use_inputs();
    for (const int index : uses) {
      Subject& own = group(index);
      const GroupFacts& of = problem_.group(index);
      if (problem_.uses_weights(*task_))
        reads(compute, of.resident ? memory(own, Memory::shards) : slot(own, SlotKind::weights).use);
      if (problem_.writes_gradients(*task_) && of.trainable)
        writes(compute, of.slot_elements == 0 ? memory(own, Memory::sum) : slot(own, SlotKind::gradient).use);
    }
  }
  /// The buffer from which a computation reads its input, and the buffer to which it writes the next unit's input; -1
  /// if there is no such buffer.
  /// @{
  constexpr int read_buffer() {
    const bool fetched = task_->action == Action::backward && problem_.offloads(task_->index);
    return fetched ? number_of(input(task_->index), SlotKind::input) : holders_.in_forward(task_->index);
  }
  constexpr int written_buffer() const {
    return task_->action == Action::forward ? holders_.in_forward(task_->index + 1) : -1;
  }
  /// @}
  constexpr void wait_for_inputs() {
    if (task_->action == Action::backward) wait(compute, input(task_->index)[Happened::fetched]);
    if (const int buffer = written_buffer(); buffer >= 0) wait(compute, slot(SlotKind::input, buffer).free);
  }
  constexpr void use_inputs() {
    if (const int buffer = read_buffer(); buffer >= 0) reads(compute, slot(SlotKind::input, buffer).use);
    if (const int buffer = written_buffer(); buffer >= 0) writes(compute, slot(SlotKind::input, buffer).use);
  }
  /// Simulates a stage, which waits for the exchanges that deliver its inputs.
  constexpr void compute_stage() {
    const std::vector<Stage> stages = stages_of(problem_.unit(task_->index).stages);
    const Stage& stage = stages[static_cast<std::size_t>(task_->stage)];
    for (const Stage& exchange : stages)
      if (reads_from(stage, exchange)) wait(compute, moved(exchange).done);
    enqueue(compute);
    for (const Stage& exchange : stages) {
      if (reads_from(stage, exchange)) reads(compute, moved(exchange).received);
      if (exchanges(exchange.step) && sends_by(stage, exchange)) writes(compute, moved(exchange).sent);
    }
  }
  constexpr void exchange() {
    const std::vector<Stage> stages = stages_of(problem_.unit(task_->index).stages);
    Moved& own = moved(stages[static_cast<std::size_t>(task_->stage)]);
    wait(sequence, clocks_[compute]);
    own.done = enqueue(sequence);
    reads(sequence, own.sent);
    writes(sequence, own.received);
  }
  /// The buffers of an exchange. There are two for each kind of exchange, which the parts of all units use alternately.
  constexpr Moved& moved(const Stage& exchange) {
    return moved_[2 * static_cast<std::size_t>(exchange.step) + static_cast<std::size_t>(exchange.part % 2)];
  }
  const Schedule& schedule_;
  const Problem& problem_;
  std::vector<QueuedWork>* works_;
  /// Groups by index, inputs by unit.
  std::vector<Subject> groups_, inputs_;
  /// By SlotKind, then by slot number.
  std::array<std::vector<Slot>, static_cast<std::size_t>(SlotKind::input) + 1> slots_;
  InputHolders holders_;              ///< used only for the buffers in forward
  std::array<Moved, 20> moved_ = {};  ///< two for each Step
  /// Vector clock of each queue: the work that has finished when its next item starts.
  std::array<Event, queues> clocks_ = {};
  int at_ = 0;                  ///< number of the current task
  const Task* task_ = nullptr;  ///< the current task
  Race race_;
};

}  // namespace detail

/// Returns the first two tasks of a placed list that use the same memory on different queues without an event between
/// them; a default Race if there is no race. `check_schedule` must accept the list.
constexpr Race first_race(const Schedule& placed, const Problem& problem) {
  return detail::EventOrder(placed, problem).run();
}

/// Returns the work items of a placed list, in the order in which the host enqueues them. The list must be free of
/// races (`first_race`).
constexpr std::vector<QueuedWork> queued_works(const Schedule& placed, const Problem& problem) {
  std::vector<QueuedWork> works;
  detail::EventOrder(placed, problem, &works).run();
  return works;
}

}  // namespace fsdp::sharding
