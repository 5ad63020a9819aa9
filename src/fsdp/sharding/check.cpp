// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/check.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/sharding/slots.hpp>

namespace fsdp::sharding {
namespace {

constexpr int never = -1;

/// What the tasks so far did to a group. Each field is the number of the last task that did it, or `never`.
struct GroupState {
  int gathered = never;  ///< and not released since
  int released = never;  ///< and not gathered since
  int used = never;      ///< since they were gathered
  int kept = never;
  int crossed = never;  ///< shards were gathered across
  int opened = never;   ///< and not closed since
  int closed = never;   ///< and not opened since
  int written = never;  ///< and not reduced since
  int reduced = never;
  int reduced_across = never;
};

/// Applies the rules of check.hpp to the tasks of a list, one after the other.
class Judge {
 public:
  Judge(const Schedule& schedule, const Problem& problem, const Names& names)
      : schedule_(schedule),
        problem_(problem),
        names_(names),
        computations_(computations(problem)),
        groups_(problem.groups.size()),
        judges_gradient_slots_(std::any_of(schedule.begin(), schedule.end(),
                                           [](const Task& task) { return has_gradient_slot(task.action); })) {}

  void run() {
    for (at_ = 0; at_ < static_cast<int>(schedule_.size()); ++at_) judge();
    judge_end();
  }

 private:
  const Task& task() const { return task_at(at_); }
  const Task& task_at(int number) const { return schedule_[static_cast<std::size_t>(number)]; }
  GroupState& state(int group) { return groups_[static_cast<std::size_t>(group)]; }
  /// Whether an earlier pass left all weights gathered.
  bool begins_gathered() const { return problem_.pass == Pass::generate_again; }

  /// "task 17, release block 2".
  std::string name_of(int number) const { return message("task ", number, ", ", text_of(task_at(number), names_)); }
  /// Prints a group's name; the text is made only for an error.
  struct GroupName {
    int group;
    const Names& names;
    friend std::ostream& operator<<(std::ostream& out, const GroupName& name) {
      return out << subject_of({.action = Action::gather, .index = name.group}, name.names);
    }
  };
  GroupName group_name(int group) const { return {group, names_}; }

  template <class... Parts>
  void require_of(int number, bool holds, const Parts&... parts) const {
    if (!holds) throw InputError(message("sharding: ", name_of(number), ": ", parts..., around(number)));
  }
  /// Returns a task's neighbourhood: " [training, tasks 2 to 4: gather block 0, forward block 0, release block 0]".
  std::string around(int number) const {
    constexpr int near = 2;
    const int begin = std::max(number - near, 0);
    const int end = std::min(number + near, static_cast<int>(schedule_.size()) - 1);
    std::string text = message(" [", sharding::name_of(problem_.pass), ", tasks ", begin, " to ", end, ":");
    for (int i = begin; i <= end; ++i) text += (i == begin ? " " : ", ") + text_of(task_at(i), names_);
    return text + "]";
  }
  /// Throws for the current task.
  template <class... Parts>
  void require_here(bool holds, const Parts&... parts) const {
    require_of(at_, holds, parts...);
  }

  void judge() {
    require_here(!communicates(task().action) || waited_ == never, "task ", waited_,
                 " may wait for a reduction, so that this is sent at a time that depends on timing; put it before "
                 "task ",
                 waited_, ", or after the next computation");
    const auto count = computes(task().action) ? problem_.units.size() : problem_.groups.size();
    require_here(task().index >= 0 && static_cast<std::size_t>(task().index) < count, "there are ", count, " of these");
    // There are never more slots held at once than tasks; a larger number would only waste memory.
    require_here(task().slot >= -1 && task().slot < static_cast<int>(schedule_.size()), "slot ", task().slot,
                 " is no number of a slot; give one from 0 on, or -1 to leave it to sharding::place");
    switch (task().action) {
      case Action::gather: return gather();
      case Action::gather_in_group: return gather_in_group();
      case Action::gather_across: return gather_across();
      case Action::forward:
      case Action::loss:
      case Action::backward: return compute();
      case Action::keep: return keep();
      case Action::release: return release();
      case Action::open_gradient: return open_gradient();
      case Action::reduce: return reduce();
      case Action::reduce_across: return reduce_across();
      case Action::close_gradient: return close_gradient();
    }
  }

  void gather() {
    GroupState& group = state(task().index);
    require_here(!problem_.group(task().index).resident, "its weights are whole on every rank at rest; leave this out");
    require_here(!begins_gathered(), "its weights are still gathered from the pass before; leave this out");
    require_here(group.gathered == never, "its weights were gathered already by task ", group.gathered,
                 " and not released since");
    require_no_idle_release(group);
    require_crossed(task().index);
    take(weight_slots_);
    group.gathered = at_;
    group.released = never;
    group.used = never;
  }

  void gather_in_group() {
    require_here(state(task().index).kept != never, "no rank kept a part of its weights before");
    gather();
  }

  void keep() {
    require_here(problem_.keeps_parts(), "no ranks keep weights together under this strategy on this mesh");
    const GroupState& group = state(task().index);
    require_here(group.gathered != never, "its weights are not gathered");
    // The first use waits for the gather. Before that, the weights are still in flight.
    require_here(group.used != never, "no computation used its weights since they were gathered");
    state(task().index).kept = at_;
  }

  void gather_across() {
    GroupState& group = state(task().index);
    require_here(problem_.group(task().index).across == Across::shard,
                 "the optimizer's part of it is not sharded over an outer axis; leave this out");
    require_here(!begins_gathered(), "its shards are still whole from the pass before; leave this out");
    require_here(group.crossed == never, "its shards were gathered across already by task ", group.crossed);
    group.crossed = at_;
  }
  void require_crossed(int group) {
    require_here(problem_.group(group).across != Across::shard || state(group).crossed != never || begins_gathered(),
                 "the shards of ", group_name(group), " were not gathered across before");
  }

  void release() {
    GroupState& group = state(task().index);
    require_here(problem_.pass != Pass::generate && !begins_gathered(),
                 "a pass that generates keeps what it gathered; leave this out");
    require_here(group.gathered != never, "its weights are not gathered");
    give_back(weight_slots_, group.gathered);
    group.gathered = never;
    group.released = at_;
  }

  /// Throws if weights were released before any use, while they may be in flight. Called late, since a use that follows
  /// the release gets a better error.
  void require_no_idle_release(const GroupState& group) const {
    require_of(group.released, group.released == never || group.used != never,
               "no computation used its weights since they were gathered");
  }

  void compute() {
    const auto next = static_cast<std::size_t>(computed_);
    require_here(next < computations_.size(), "nothing is left to compute");
    const Task& expected = computations_[next];
    if (task().action != expected.action || task().index != expected.index ||
        task().micro_batch != expected.micro_batch)
      require_here(false, "the next computation is ", text_of(expected, names_), " of micro-batch ",
                   expected.micro_batch);
    ++computed_;
    waited_ = never;
    for (const int group : problem_.unit(task().index).groups) {
      if (problem_.uses_weights(task())) use(group);
      if (problem_.writes_gradients(task()) && problem_.group(group).trainable) write(group);
    }
  }

  void use(int index) {
    GroupState& group = state(index);
    if (problem_.group(index).resident) return require_crossed(index);
    if (group.released != never)
      require_of(group.released, false, "its weights are still used by ", name_of(at_),
                 "; release them after it, or gather them again before it");
    require_here(group.gathered != never || begins_gathered(), "the weights of ", group_name(index),
                 " are not gathered; gather them before");
    group.used = at_;
  }

  void write(int index) {
    GroupState& group = state(index);
    require_here(group.reduced_across == never, "the gradient of ", group_name(index),
                 " was reduced across already by task ", group.reduced_across,
                 "; reduce it across after its last write");
    if (problem_.pieces > 0) require_one_reduction(index);
    require_here(!problem_.group(index).resident || group.reduced == never, "the gradient of ", group_name(index),
                 " was all-reduced in place already by task ", group.reduced, "; reduce it once, after its last write");
    if (judges_gradient_slots_) {
      require_here(group.opened != never, "the gradient of ", group_name(index), " has no open slot");
      require_here(group.reduced < group.opened, "the gradient slot of ", group_name(index),
                   " is still read by its reduction, task ", group.reduced, "; close it and open it again before");
    }
    group.written = at_;
  }

  /// Where a step is cut into pieces, the owner adds one contribution of each: else the sum would depend on the ranks.
  void require_one_reduction(int index) {
    const GroupState& group = state(index);
    const auto here = [&](int number) { return number != never && task_at(number).micro_batch == task().micro_batch; };
    require_here(group.written == never || here(group.written), "the gradient of ", group_name(index),
                 " still holds what task ", group.written,
                 " added in the micro-batch before, and a strategy whose steps are cut into pieces reduces each by "
                 "itself; reduce it in every micro-batch");
    require_here(!here(group.reduced), "the gradient of ", group_name(index), " was reduced by task ", group.reduced,
                 ", and a strategy whose steps are cut into pieces reduces each once; reduce it after its last write");
  }

  void open_gradient() {
    GroupState& group = state(task().index);
    require_here(problem_.group(task().index).trainable && problem_.pass == Pass::train,
                 "no gradient of it is made in this pass");
    require_here(group.opened == never, "its gradient was opened already by task ", group.opened);
    take(gradient_slots_);
    group.opened = at_;
    group.closed = never;
  }

  void reduce() {
    GroupState& group = state(task().index);
    require_here(group.written != never || group.reduced == never,
                 "nothing was added to its gradient since it was reduced by task ", group.reduced);
    require_here(group.written != never, "nothing was added to its gradient");
    if (judges_gradient_slots_)
      require_here(group.opened != never, "its gradient slot was closed before by task ", group.closed);
    group.written = never;
    group.reduced = at_;
  }

  void reduce_across() {
    GroupState& group = state(task().index);
    require_here(problem_.group(task().index).across != Across::nothing,
                 "its gradient crosses no outer axis; leave this out");
    require_here(group.written == never && group.reduced != never, "its gradient is not reduced over the inner axis");
    require_here(group.reduced_across == never, "its gradient was reduced across already by task ",
                 group.reduced_across);
    group.reduced_across = at_;
  }

  void close_gradient() {
    GroupState& group = state(task().index);
    require_here(group.opened != never, "its gradient is not open");
    require_here(group.written == never, "its gradient, written by task ", group.written, ", is not reduced yet");
    give_back(gradient_slots_, group.opened);
    group.opened = never;
    group.closed = at_;
    waited_ = at_;
  }

  using Holders = std::map<int, int>;  ///< by slot: the number of the task that took it

  void take(Holders& slots) {
    if (task().slot < 0) return;
    const auto [place, taken] = slots.try_emplace(task().slot, at_);
    require_here(taken, "slot ", task().slot, " is held by ", group_name(task_at(place->second).index), " since task ",
                 place->second);
  }
  /// Frees the slot that task `by` took.
  void give_back(Holders& slots, int by) {
    const int slot = task_at(by).slot;
    require_here(task().slot < 0 || slot < 0 || task().slot == slot, "it is in slot ", slot, ", not ", task().slot);
    slots.erase(slot);
  }

  void judge_end() {
    if (computed_ < static_cast<int>(computations_.size())) {
      const Task& missing = computations_[static_cast<std::size_t>(computed_)];
      throw InputError(message("sharding: the list of ", schedule_.size(), " tasks ends before ",
                               text_of(missing, names_), " of micro-batch ", missing.micro_batch));
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const GroupState& group = groups_[g];
      require_no_idle_release(group);
      require_of(group.written, group.written == never, "what it adds to the gradient of ",
                 group_name(static_cast<int>(g)), " is never reduced");
      require_of(
          group.reduced,
          group.reduced == never || problem_.groups[g].across == Across::nothing || group.reduced_across != never,
          "its sum is never reduced across");
      require_of(group.gathered, group.gathered == never || problem_.pass == Pass::generate,
                 "its weights are never released");
      require_of(group.opened, group.opened == never, "its slot is never closed");
    }
  }

  const Schedule& schedule_;
  const Problem& problem_;
  const Names& names_;
  Schedule computations_;
  std::vector<GroupState> groups_;
  bool judges_gradient_slots_;
  int at_ = 0;          ///< the current task
  int computed_ = 0;    ///< number of computations so far
  int waited_ = never;  ///< the last task that may wait, since the last computation
  Holders weight_slots_, gradient_slots_;
};

}  // namespace

void check(const Schedule& schedule, const Problem& problem, const Names& names) {
  Judge(schedule, problem, names).run();
}

Schedule checked_and_placed(const Schedule& schedule, const Problem& problem, const Names& names) {
  check(schedule, problem, names);
  Schedule placed = assign_slots(schedule, problem);
  check(placed, problem, names);
  return placed;
}

std::uint64_t digest_of(const Schedule& schedule) {
  std::uint64_t hash = hash_seed;
  for (const Task& task : schedule)
    for (const int field : {static_cast<int>(task.action), task.index, task.micro_batch, task.slot})
      hash = hashed(hash, static_cast<std::int64_t>(field));
  return hash;
}

}  // namespace fsdp::sharding
