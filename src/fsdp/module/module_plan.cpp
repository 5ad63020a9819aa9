// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/module_plan.hpp>

#include <algorithm>
#include <bit>
#include <functional>
#include <set>
#include <utility>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/sharding/check.hpp>

namespace fsdp {
namespace {

/// Returns the passes of a purpose.
std::span<const sharding::Pass> passes_of(Purpose purpose) {
  static constexpr std::array all{sharding::Pass::train, sharding::Pass::evaluate, sharding::Pass::generate,
                                  sharding::Pass::generate_again};
  const std::span<const sharding::Pass> passes(all);
  if (purpose == Purpose::train) return passes.first(2);
  return purpose == Purpose::evaluate ? passes.subspan(1, 1) : passes.last(2);
}

/// Maximum number of computations of a step: planning this many takes seconds and some hundred megabytes.
constexpr std::int64_t most_computations = 1 << 20;
/// If passes may have fewer micro-batches, all numbers below this one are planned.
constexpr int all_planned = 16;

/// Returns the declarations that must be the same on all ranks, one line per tensor. Numbers are printed exactly.
std::string text_of(std::span<const Unit> units) {
  static constexpr std::array initials{"normal", "zeros", "ones"};
  std::string text;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters) {
      const auto initial = static_cast<std::size_t>(parameter.initial.kind);
      text += message(unit.name, ": ", parameter.name, " ", shape_text(parameter.shape), ", initially ",
                      initial < initials.size() ? initials[initial] : "of no kind", " ",
                      exact_text(parameter.initial.deviation), ", ", name_of(parameter.role),
                      parameter.decays ? ", decays" : "", unit.gathered ? "\n" : ", not gathered\n");
    }
  return text;
}

std::uint64_t digest_of_steps(std::span<const GroupedParameters> groups) {
  std::uint64_t hash = hash_seed;
  for (const GroupedParameters& group : groups)
    for (const Parameter& parameter : group.parameters) {
      const StepOptions& step = parameter.step;
      for (const double number : {step.lr, step.weight_decay.value_or(-1), step.clip})
        hash = hashed(hash, std::bit_cast<std::int64_t>(number));
      hash = hashed(hash, static_cast<std::int64_t>(step.clip_group));
    }
  return hash;
}

/// Returns a unit's stages. Throws InputError for an invalid number of parts.
const sharding::Stages& checked_stages(const Unit& unit) {
  constexpr int most_parts = 512;  // parts of the heads; the time to plan grows with the square of their number
  require<InputError>(unit.stages.parts >= 0 && unit.stages.parts <= most_parts, "units: ", unit.name,
                      " is to be computed in ", unit.stages.parts, " parts; give 0, for a unit without stages, to ",
                      most_parts);
  return unit.stages;
}

}  // namespace

ModulePlan::ModulePlan(std::span<const Unit> units, const PassPlan& passes, StrategyCalls strategy,
                       std::vector<sharding::Axes> axes, int ranks, bool overlaps)
    : passes_(passes), strategy_(std::move(strategy)), axes_(std::move(axes)), units_(text_of(units)) {
  require<InputError>(passes.micro_batches >= 1, "sharded module: ", passes.micro_batches,
                      " micro-batches make no step; give at least 1");
  require(!strategy_.parts.empty() && strategy_.parts.size() == axes_.size(), "sharding: a strategy has no parts");
  for (const StrategyPart& part : strategy_.parts)
    require<InputError>(part.rules.facts.persistence_threshold >= 0, "sharding: a persistence threshold of ",
                        part.rules.facts.persistence_threshold, " elements; give 0 for no persistent tensors");
  check_ranks_per_sequence(passes.ranks_per_sequence, ranks);
  check_pieces(ranks / passes.ranks_per_sequence);
  digest_ = hashed(digest_, std::int64_t{passes.ranks_per_sequence});
  UnitGroups groups = group_parameters(units, passes.unit_options, strategy_.parts, strategy_.facts.pieces > 0);
  for (const GroupedParameters& group : groups.groups) names_.groups.push_back(group.name);
  for (std::size_t i = 0; i < units.size(); ++i) {
    names_.units.push_back(units[i].name);
    names_.stages.push_back(checked_stages(units[i]));
    groups.uses[i].stages = units[i].stages;
  }
  grouped_ = std::move(groups.groups);
  for (const GroupedParameters& group : grouped_) {
    digest_ = hashed(digest_, std::int64_t{group.is_float});
    for (const Parameter& parameter : group.parameters) digest_ = hashed(digest_, parameter.name);
  }
  steps_digest_ = digest_of_steps(grouped_);
  references_ = std::move(groups.references);
  problem_ = {.units = std::move(groups.uses),
              .groups = {},
              .pieces = strategy_.facts.pieces,
              .overlap = overlaps,
              .fixed_slots = passes.fixed_slots};
  check_orders(units);
  if (passes_.orders.empty()) passes_.orders.emplace_back();
  for (const Order& order : passes_.orders) check_length(order);
}

ModulePlan::~ModulePlan() = default;

sharding::GroupFacts ModulePlan::facts_of(const GroupedParameters& group) const {
  sharding::GroupFacts facts = fsdp::facts_of(group, part_of(group), axes_[group.part]);
  facts.held_to_head = passes_.unit_options.keep_last_block;
  return facts;
}

void ModulePlan::check_pieces(int groups) const {
  const sharding::Facts& facts = strategy_.facts;
  require<InputError>(facts.pieces >= 0, "sharding: a step of ", facts.pieces, " pieces; give at least 1");
  if (facts.pieces == 0 || passes_.purpose != Purpose::train) return;
  const auto crosses = [](const StrategyPart& part) { return part.rules.facts.across != sharding::Across::nothing; };
  require<InputError>(std::ranges::none_of(strategy_.parts, crosses),
                      "sharding: this strategy adds up the gradients of each group of ranks first, so that the sum "
                      "would depend on the ranks; take fsdp2, zero2 or zero3, which reduce over all ranks, with "
                      "pieces, or leave the pieces out");
  const auto replicates = [](const StrategyPart& part) { return part.rules.facts.whole_at_rest; };
  require<InputError>(passes_.unit_options.replicated.empty() && std::ranges::none_of(strategy_.parts, replicates),
                      "sharding: parameters that are whole on every rank (replicated) add up each rank's gradients "
                      "first, so that the sum would depend on the ranks; leave either them or the pieces out");
  const int micro_batches = sharding::micro_batches_of(facts.pieces, groups);
  require<InputError>(passes_.micro_batches == micro_batches && !passes_.fewer, "sharding: a step of ", facts.pieces,
                      " pieces on ", readers_text(groups, passes_.ranks_per_sequence), " has ", micro_batches,
                      " micro-batches, and ", passes_.fewer ? "steps of fewer" : std::to_string(passes_.micro_batches),
                      " are planned; give micro_batches_of(pieces, ",
                      passes_.ranks_per_sequence > 1 ? "groups)" : "ranks)");
}

void ModulePlan::check_orders(std::span<const Unit> units) const {
  const int count = static_cast<int>(units.size());
  for (const Order& order : passes_.orders) {
    require<InputError>(passes_.unit_options.offload_inputs == 0,
                        "order: inputs in host memory (UnitOptions::offload_inputs) are those of a model's chain of "
                        "blocks; leave either them or the orders out");
    require<InputError>(!order.list.empty(), "order: it names no computation; leave it out for the chain of all units");
    for (const auto& [action, unit] : order.list) {
      require<InputError>(sharding::computes(action), "order: '", sharding::name_of(action),
                          "' is no computation; an order lists forward, backward and loss (both in one go), and the "
                          "strategy adds what moves weights");
      require<InputError>(unit >= 0 && unit < count, "order: unit ", unit, " is named, and there are ", count,
                          ", counted from 0");
      require<InputError>(units[static_cast<std::size_t>(unit)].gathered,
                          "order: ", units[static_cast<std::size_t>(unit)].name,
                          " is named, and it is declared as never gathered");
    }
    for (const int unit : order.without_gradients)
      require<InputError>(unit >= 0 && unit < count, "order: unit ", unit, " is to make no gradients, and there are ",
                          count, ", counted from 0");
  }
  if (passes_.purpose == Purpose::train && !passes_.orders.empty()) require_used();
}

void ModulePlan::check_length(const Order& order) const {
  const auto stages_of = [&](int unit) {
    const sharding::Stages& stages = problem_.unit(unit).stages;
    return std::int64_t{stages.parts == 0 ? 2 : sharding::stage_count(stages)};
  };
  std::int64_t length = 0;  // computations of one micro-batch: each unit's forward and backward, or those of an order
  for (const sharding::Computation& next : order.list) length += (stages_of(next.unit) + 1) / 2;
  for (int unit = 0; order.list.empty() && unit < std::ssize(problem_.units); ++unit) length += stages_of(unit);
  require<InputError>(passes_.micro_batches == 1 || length <= most_computations / passes_.micro_batches,
                      "sharded module: ", passes_.micro_batches, " micro-batches of ", length,
                      " computations each; a step has at most ", most_computations, " computations, so that at most ",
                      std::max<std::int64_t>(most_computations / std::max<std::int64_t>(length, 1), 1),
                      " of these micro-batches are possible");
}

void ModulePlan::require_used() const {
  std::vector<bool> makes_gradient(grouped_.size());
  for (const Order& order : passes_.orders) {
    std::vector<bool> without(problem_.units.size());
    for (const int unit : order.without_gradients) without[static_cast<std::size_t>(unit)] = true;
    for (const sharding::Computation& next : order.list)
      if (sharding::computes_backward(next.action) && !without[static_cast<std::size_t>(next.unit)])
        for (const int group : problem_.unit(next.unit).groups) makes_gradient[static_cast<std::size_t>(group)] = true;
  }
  for (std::size_t group = 0; group < grouped_.size(); ++group) {
    if (grouped_[group].frozen || !grouped_[group].gathered) continue;
    require<InputError>(makes_gradient[group], "order: nothing makes a gradient of ", names_.groups[group],
                        ", which is to be trained; add its backward to an order, freeze its tensors "
                        "(UnitOptions::frozen), or declare the unit with gathered = false if rows of it are sent");
  }
}

void ModulePlan::add(const sharding::GroupFacts& facts, std::uint64_t layouts) {
  problem_.groups.push_back(facts);
  layouts_digest_ = hashed(layouts_digest_, static_cast<std::int64_t>(layouts));
}

sharding::Problem ModulePlan::problem_of(const Key& key) const {
  const auto& [pass, order, micro_batches] = key;
  sharding::Problem problem = problem_;
  const Order& own = passes_.orders[static_cast<std::size_t>(order)];
  problem.order = own.list;
  for (const int unit : own.without_gradients) problem.units[static_cast<std::size_t>(unit)].makes_gradients = false;
  problem.pass = pass;
  problem.micro_batches = micro_batches;
  problem.holds = residency_.holds;
  return problem;
}

PlannedPass ModulePlan::made(const Key& key) const {
  PlannedPass made{.problem = problem_of(key), .schedule = {}};
  made.schedule = sharding::checked_and_placed(strategy_.schedule_of(made.problem), made.problem, names_);
  return made;
}

int ModulePlan::most_micro_batches(sharding::Pass pass) const {
  return pass == sharding::Pass::train ? passes_.micro_batches : 1;
}

std::vector<ModulePlan::Key> ModulePlan::keys() const {
  std::vector<Key> list;
  for (const sharding::Pass pass : passes_of(passes_.purpose))
    for (int order = 0; order < orders(); ++order) {
      const int most = most_micro_batches(pass);
      if (passes_.repeats && !passes_.fewer && most > 1) list.emplace_back(pass, order, 1);
      for (int count = 1; passes_.fewer && count < std::min(most, all_planned); ++count)
        list.emplace_back(pass, order, count);
      // Above that, only the repeated halves of the maximum, so that time and memory are proportional to the maximum.
      for (int count = most / 2; passes_.fewer && count >= all_planned; count /= 2)
        list.emplace_back(pass, order, count);
      list.emplace_back(pass, order, most);
    }
  return list;
}

void ModulePlan::choose_holds() {
  const std::int64_t budget = strategy_.facts.budget;
  require<InputError>(
      budget != memory_left,
      "sharding: budget=auto, what memory leaves for gathered weights, is found out by the command train "
      "alone; give bytes, as in budget=512MiB");
  require<InputError>(budget >= 0, "sharding: a budget of ", budget,
                      " bytes for gathered weights; give bytes, or 0 for no bound");
  if (budget == 0 || passes_.purpose == Purpose::generate) return;
  const sharding::Pass counted = passes_of(passes_.purpose).front();
  std::vector<sharding::Problem> steps, others;
  for (const Key& key : keys()) {
    const auto& [pass, order, micro_batches] = key;
    const bool is_step = pass == counted && micro_batches == most_micro_batches(pass);
    (is_step ? steps : others).push_back(problem_of(key));
  }
  residency_ = sharding::choose_residency(strategy_.schedule_of, steps, others, budget);
}

void ModulePlan::make_schedules() {
  first_backward_ = sharding::first_backward(problem_);
  const int lowest = std::max(first_backward_, 1), head = static_cast<int>(problem_.units.size()) - 1;
  for (const int block : offloaded_blocks(passes_.unit_options.offload_inputs, head - lowest))
    problem_.units[static_cast<std::size_t>(lowest + block)].offloads_input = true;
  choose_holds();
  for (const Key& key : keys()) {
    PlannedPass placed = made(key);
    slots_ = largest(std::move(slots_), sharding::slot_sizes(placed.schedule, placed.problem));
    digest_ = hashed(digest_, static_cast<std::int64_t>(sharding::digest_of(placed.schedule)));
    if (std::get<2>(key) == most_micro_batches(std::get<0>(key))) passes_made_.emplace(key, std::move(placed));
  }
  find_classes();
}

void ModulePlan::find_classes() {
  std::vector<std::vector<bool>> trained;  // [groups][orders]
  for (const sharding::GroupFacts& group : problem_.groups)
    // Rows of a group that is never gathered may be used in every Order
    trained.emplace_back(passes_.orders.size(), group.trainable && !group.gathered);
  for (std::size_t order = 0; order < passes_.orders.size(); ++order) {
    const sharding::Problem problem = problem_of({sharding::Pass::train, static_cast<int>(order), 1});
    for (const sharding::Task& task : sharding::computations(problem))
      if (problem.writes_gradients(task))
        for (const int group : problem.unit(task.index).groups)
          trained[static_cast<std::size_t>(group)][order] = problem.group(group).trainable;
  }
  // Checkpoints store a number by class, so that classes are not numbered by groups, which depend on the strategy.
  const std::set<std::vector<bool>, std::greater<>> all(trained.begin(), trained.end());
  for (const std::vector<bool>& by : all)
    if (std::ranges::count(by, true) > 0) classes_.push_back(by);
  for (const std::vector<bool>& by : trained) {
    // A group that no order trains belongs to no class, so any class is valid for it.
    const auto found = std::ranges::find(classes_, by);
    class_of_.push_back(found == classes_.end() ? 0 : static_cast<int>(found - classes_.begin()));
  }
  if (classes_.empty()) classes_.emplace_back(passes_.orders.size(), true);
}

const PlannedPass& ModulePlan::planned(sharding::Pass pass, int order, int micro_batches) const {
  static const PlannedPass none;
  if (std::ranges::count(passes_of(passes_.purpose), pass) == 0) return none;
  if (micro_batches == 0) micro_batches = passes_.micro_batches;
  require(order >= 0 && order < orders(), "pass: order ", order, " is asked for, and there are ", orders(),
          ", counted from 0");
  require(micro_batches == passes_.micro_batches || pass != sharding::Pass::train ||
              (passes_.fewer && micro_batches >= 1 && micro_batches < passes_.micro_batches) ||
              (passes_.repeats && micro_batches == 1),
          "train: ", micro_batches, " micro-batches given to a module planned for ", passes_.micro_batches);
  const Key key{pass, order, pass == sharding::Pass::train ? micro_batches : 1};
  if (const auto found = passes_made_.find(key); found != passes_made_.end()) return found->second;
  PlannedPass late = made(key);
  require<InputError>(sharding::largest(slots_, sharding::slot_sizes(late.schedule, late.problem)) == slots_,
                      "train: the strategy's schedule of ", micro_batches,
                      " micro-batches takes larger slots than its ", "schedules of ", passes_.micro_batches,
                      " and of their halves, for which memory was planned; ", "plan for ", micro_batches);
  return passes_made_.emplace(key, std::move(late)).first->second;
}

void ModulePlan::require_same(const comm::Ranks& ranks) const {
  if (ranks.size() == 1) return;
  using Digests = std::array<std::uint64_t, 4>;
  const Digests mine{hashed(hash_seed, std::string_view(units_)), digest_, steps_digest_, layouts_digest_};
  std::vector<Digests> all(static_cast<std::size_t>(ranks.size()));
  ranks.gather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {"schedules"});
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] != all[0][0])
      comm::require_same_texts(
          ranks.monitor(), comm::gather_texts(ranks, units_, "units"),
          message("sharding: rank ", rank, " has other units than rank 0"),
          "names, shapes, initial values, roles and decay of tensors must be the same on every rank");
    require<InputError>(
        all[rank][1] == all[0][1], "sharding: rank ", rank,
        " has another schedule than rank 0; a strategy's rules or schedule must depend on nothing but "
        "the problem, and its numbers, the patterns of its parts, the orders of computations, the number of "
        "micro-batches and what is frozen, replicated, merged or float (UnitOptions) must be the same on every rank");
    require<InputError>(all[rank][2] == all[0][2], "sharding: rank ", rank,
                        " has other groups of parameters than rank 0; their learning rates, weight decays and clips "
                        "must be the same on every rank");
    require<InputError>(all[rank][3] == all[0][3], "sharding: rank ", rank,
                        " has another layout than rank 0; a layout policy must depend on nothing but the tensors and "
                        "the number of ranks, and its numbers must be the same on every rank");
  }
}

}  // namespace fsdp
