// SPDX-License-Identifier: Apache-2.0
// A strategy for each unit and a precision for each tensor, of types that cannot be combined.
// expect 1: fsdp: PerUnit has no strategy; give it on(pattern, strategy) and otherwise(strategy)
// expect 1: fsdp: a part of PerUnit has parts too; list them in one PerUnit
// expect 1: fsdp: a part of PerUnit has its own schedule, which does not know the groups of other parts
// expect 1: fsdp: a part of PerUnit is an Offload, and optimizer state is in one memory for all parts; write
// expect 1: fsdp: a part of PerUnit is a Reproducible, and a step is cut into pieces as a whole; write
// expect 2: fsdp: PrecisionBy lists precisions, and the last is that of all other tensors; give
// expect 2: fsdp: PrecisionBy computes with some weights in float next to 16-bit weights, and its last precision
// expect 2: fsdp: PrecisionBy combines one 16-bit type with float, and a precision in it has another Compute; give
// expect 4: fsdp: PerUnit ends with the strategy of all other tensors; write PerUnit{on(pattern, strategy), ...,
// expect 4: fsdp: a strategy in PerUnit{...} has another type than PerUnit<...> lists in its place; leave <...> out
// expect 4: fsdp: a part of PerUnit is no sharding strategy; give on(pattern, strategy) and otherwise(strategy) one
// expect 4: fsdp: PrecisionBy ends with the precision of all other tensors; write PrecisionBy{on(pattern, Fp32{}),
// expect 4: fsdp: a precision in PrecisionBy{...} has another type than PrecisionBy<...> lists in its place
// expect 4: fsdp: PrecisionBy lists a type that is no precision policy; give on(pattern, precision)
// expect 4: fsdp: WithLayout is of one strategy, and each part of a PerUnit has its own layout
// expect 3: task: the weights of {group} are not gathered; gather them before
// expect 3 of g++: sharding: task 4, forward block 0: the weights of block 0 are not gathered
#include <tessera/fsdp/precision/by_tensor.hpp>
#include <tessera/fsdp/sharding/own_strategy.hpp>
#include <tessera/fsdp/sharding/per_unit.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp {

struct OwnSchedule : Zero3 {
  constexpr sharding::Facts facts() const { return {}; }
  constexpr sharding::Schedule schedule(const sharding::Problem& problem) const {
    return sharding::make_schedule(rules(), problem);
  }
};
/// Its shards are used as if they were whole.
struct NeverGathers : Zero3 {
  constexpr sharding::Rules rules() const { return {.hold = sharding::Hold::always}; }
};

#if CASE == 0
static_assert(sharding::holds<PerUnit<Zero3, FullyShard<>>>());
static_assert(check_precision<PrecisionBy<Fp32, Fp16Mixed>>());
#elif CASE == 1
PerUnit<> empty;
PerUnit<PerUnit<Zero1>, Zero3> nested;
PerUnit<OwnSchedule, Zero3> scheduled;
PerUnit<Zero1, Offload<Zero1>> offloads;
PerUnit<Reproducible<Zero2>, Zero3> in_pieces;
#elif CASE == 2
PrecisionBy<Bf16Mixed> one;
PrecisionBy<Fp32, Fp32> floats;
PrecisionBy<Bf16Mixed, Fp16Mixed> two;
#elif CASE == 3
static_assert(sharding::holds<PerUnit<FullyShard<>, NeverGathers>>());
#elif CASE == 4
PerUnit without_pattern{Zero1{}, otherwise(Zero3{})};
PerUnit<Zero1, Zero3> of_other_types{on("a", Zero2{}), otherwise(Zero3{})};
PerUnit of_a_precision{on("a", Fp32{}), otherwise(Zero3{})};
PrecisionBy not_at_the_end{otherwise(Fp32{}), on("a", Bf16Mixed{})};
PrecisionBy<Fp32, Bf16Mixed> of_other_precisions{on("a", Bf16Mixed{}), otherwise(Bf16Mixed{})};
PrecisionBy of_a_strategy{on("a", Zero1{}), otherwise(Bf16Mixed{})};
WithLayout<PerUnit<Zero1, Zero3>, buffer::Flat> with_one_layout;
#endif

}  // namespace fsdp
