// SPDX-License-Identifier: Apache-2.0
// expect 1: task: task {other} may wait for a reduction, so that this is sent at a time that depends on timing; put it
// expect 1: task: there are {number} of these
// expect 1: task: slot {number} is no number of a slot; give one from 0 on, or -1 to leave it to sharding::assign_slots
// expect 1: task: its weights are whole on every rank at rest; leave this out
// expect 1: task: its weights are still gathered from the pass before; leave this out
// expect 1: task: its weights were gathered already by task {other} and not released since
// expect 1: task: no computation used its weights since they were gathered
// expect 1: task: the shards of {group} were not gathered across before
// expect 1: task: slot {number} is held by {group} since task {other}
// expect 2: task: no rank kept a part of its weights before
// expect 2: task: no ranks keep weights together under this strategy on this mesh
// expect 2: task: its weights are not gathered
// expect 2: task: the optimizer's part of it is not sharded over an outer axis; leave this out
// expect 2: task: its shards are still whole from the pass before; leave this out
// expect 2: task: its shards were gathered across already by task {other}
// expect 2: task: a pass that generates keeps what it gathered; leave this out
// expect 2: task: nothing is left to compute
// expect 2: task: the next computation is {expected}
// expect 3: task: its weights are still used by {other task}; release them after it, or gather them again before it
// expect 3: task: the weights of {group} are not gathered; gather them before
// expect 3: task: the gradient of {group} was reduced across already by task {other}; reduce it across after its last
// expect 3: task: the gradient of {group} still holds what task {other} added in the micro-batch before, and a
// expect 3: task: the gradient of {group} was reduced by task {other}, and a strategy whose steps are cut into pieces
// expect 3: task: the gradient of {group} was all-reduced in place already by task {other}; reduce it once, after its
// expect 3: task: the gradient of {group} has no open slot
// expect 3: task: the gradient slot of {group} is still read by its reduction, task {other}; close it and open it
// expect 3: task: no gradient of it is made in this pass
// expect 4: task: its gradient was opened already by task {other}
// expect 4: task: nothing was added to its gradient since it was reduced by task {other}
// expect 4: task: nothing was added to its gradient
// expect 4: task: its gradient crosses no outer axis; leave this out
// expect 4: task: its gradient is not reduced over the inner axis
// expect 4: task: its gradient was reduced across already by task {other}
// expect 4: task: its gradient is not open
// expect 4: task: its gradient, written by task {other}, is not reduced yet
// expect 4: task: it is in slot {number}, not {slot}
// expect 5: task: the list of {number} tasks ends before {expected}
// expect 5: task: what it adds to the gradient of {group} is never reduced
// expect 5: task: its sum is never reduced across
// expect 5: task: its weights are never released
// expect 5: task: its slot is never closed
// expect 6: fsdp: a sharding strategy's schedule cannot run; `sentence` of the note names the task: the weights
// expect 6 of g++: MessageText{"sharding: task 1, forward embedding: the weights of embedding are not gathered; gather
// expect 6 of clang++: 1, fsdp::sharding::Action::forward, 0,
// expect 7: fsdp: a sharding strategy's schedule cannot be checked at compile time, since the strategy has no default
// expect 8: task: its input stays on the device in this pass; leave this out
// expect 8: task: its input is not there; send it between the computation that makes it and the unit's own forward
// expect 8: task: its input was sent already by task {other}
// expect 8: task: its input is needed again in backward and was not sent to host memory; send it before
// expect 8: task: its input is not in host memory; send it before its forward, and fetch it after the loss
// expect 8: task: its input was fetched already by task {other}
// expect 8: task: its input is in host memory until task {other}; fetch it before
// expect 8: task: its input is in host memory and never fetched; fetch it before
// expect 8: task: inputs use {number} buffers in turn, and slot {slot} is none of them
// expect 8: task: buffer {slot} still holds the input of {unit}; fetch it after that unit is computed
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/sharding/own_strategy.hpp>

#include "../support/broken_lists.hpp"

// Violates every rule of the schedule check once. tests/sharding/own_strategy_test.cpp checks that the compile-time and
// run-time messages are identical.
namespace fsdp::sharding {

using test::Breaks;

/// Breaks a rule in a function that is not constexpr.
struct AtRunTime : Breaks<Violation::used_ungathered> {
  Schedule schedule(const Problem& problem) const { return Breaks<Violation::used_ungathered>::schedule(problem); }
};
template <class Strategy>
using StackOf = Stack<Strategy, comm::Threads<>, Fp32>;

#if CASE == 0
static_assert(holds<Breaks<Violation::none>>());
StackOf<Breaks<Violation::none>> good;
StackOf<AtRunTime> checked_when_a_module_is_made;
#elif CASE == 1
static_assert(holds<Breaks<Violation::sent_after_wait>>());
static_assert(holds<Breaks<Violation::no_such_index>>());
static_assert(holds<Breaks<Violation::no_slot_number>>());
static_assert(holds<Breaks<Violation::gathers_resident>>());
static_assert(holds<Breaks<Violation::gathers_again>>());
static_assert(holds<Breaks<Violation::gathered_twice>>());
static_assert(holds<Breaks<Violation::not_used>>());
static_assert(holds<Breaks<Violation::not_gathered_across>>());
static_assert(holds<Breaks<Violation::slot_held>>());
#elif CASE == 2
static_assert(holds<Breaks<Violation::none_kept>>());
static_assert(holds<Breaks<Violation::keeps_no_parts>>());
static_assert(holds<Breaks<Violation::not_gathered>>());
static_assert(holds<Breaks<Violation::not_sharded_across>>());
static_assert(holds<Breaks<Violation::gathers_across_again>>());
static_assert(holds<Breaks<Violation::gathered_across_twice>>());
static_assert(holds<Breaks<Violation::releases_kept>>());
static_assert(holds<Breaks<Violation::nothing_to_compute>>());
static_assert(holds<Breaks<Violation::computed_out_of_order>>());
#elif CASE == 3
static_assert(holds<Breaks<Violation::released_before_use>>());
static_assert(holds<Breaks<Violation::used_ungathered>>());
static_assert(holds<Breaks<Violation::written_after_across>>());
static_assert(holds<Breaks<Violation::pieces_mixed>>());
static_assert(holds<Breaks<Violation::piece_reduced_before>>());
static_assert(holds<Breaks<Violation::written_after_all_reduce>>());
static_assert(holds<Breaks<Violation::written_without_slot>>());
static_assert(holds<Breaks<Violation::written_while_reduced>>());
static_assert(holds<Breaks<Violation::opens_no_gradient>>());
#elif CASE == 4
static_assert(holds<Breaks<Violation::opened_twice>>());
static_assert(holds<Breaks<Violation::reduced_twice>>());
static_assert(holds<Breaks<Violation::reduces_nothing>>());
static_assert(holds<Breaks<Violation::crosses_no_axis>>());
static_assert(holds<Breaks<Violation::not_reduced_inside>>());
static_assert(holds<Breaks<Violation::reduced_across_twice>>());
static_assert(holds<Breaks<Violation::not_open>>());
static_assert(holds<Breaks<Violation::closed_unreduced>>());
static_assert(holds<Breaks<Violation::in_other_slot>>());
#elif CASE == 5
static_assert(holds<Breaks<Violation::ends_early>>());
static_assert(holds<Breaks<Violation::never_reduced>>());
static_assert(holds<Breaks<Violation::never_reduced_across>>());
static_assert(holds<Breaks<Violation::never_released>>());
static_assert(holds<Breaks<Violation::never_closed>>());
#elif CASE == 6
StackOf<Breaks<Violation::used_ungathered>> refused;
#elif CASE == 7
static_assert(holds<AtRunTime>());
#elif CASE == 8
static_assert(holds<Breaks<Violation::offloads_no_input>>());
static_assert(holds<Breaks<Violation::sent_out_of_turn>>());
static_assert(holds<Breaks<Violation::sent_twice>>());
static_assert(holds<Breaks<Violation::never_sent>>());
static_assert(holds<Breaks<Violation::fetched_unsent>>());
static_assert(holds<Breaks<Violation::fetched_twice>>());
static_assert(holds<Breaks<Violation::fetched_late>>());
static_assert(holds<Breaks<Violation::never_fetched>>());
static_assert(holds<Breaks<Violation::no_such_buffer>>());
static_assert(holds<Breaks<Violation::buffer_held>>());
#endif

}  // namespace fsdp::sharding
