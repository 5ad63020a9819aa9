// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>

#include <fnmatch.h>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "unit_groups.hpp"

namespace fsdp {

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

std::vector<int> offloaded_blocks(double share, int blocks) {
  constexpr double rounding = 1e-9;  // tolerance for a share given as a decimal number
  const int asked = share > 0 ? std::max(static_cast<int>(std::ceil(share * blocks - rounding)), 1) : 0;
  const int count = std::min(asked, blocks - 1);
  std::vector<int> list;
  for (std::int64_t i = 0; i < count; ++i) list.push_back(static_cast<int>(i * blocks / count));
  return list;
}

Unit unit_of(std::string name, std::span<const Field> fields, std::string_view prefix, bool backward_needs_weights) {
  Unit unit{.name = std::move(name), .parameters = {}, .backward_needs_weights = backward_needs_weights};
  for (int number = 0; const Field& field : fields) {
    if (!field.present())
      unit.absent.push_back(number);
    else
      unit.parameters.push_back({field.name[0] == '/' ? std::string(field.name + 1) : std::string(prefix) + field.name,
                                 field.shape, field.initial, field.role, field.decays, field.joins_previous,
                                 field.adapter, field.may_be_float, field.block, field.tied_as});
    ++number;
  }
  return unit;
}

std::vector<Parameter> distinct_parameters(std::span<const Unit> units) {
  std::vector<Parameter> list;
  std::set<std::string> seen;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters)
      if (seen.insert(parameter.name).second) list.push_back(parameter);
  return list;
}

std::int64_t distinct_elements(std::span<const Unit> units) {
  std::int64_t count = 0;
  for (const Parameter& parameter : distinct_parameters(units)) count = checked_add(count, parameter.shape.numel());
  return count;
}

std::int64_t GroupedParameters::elements() const { return elements_of(parameters); }

std::int64_t elements_of(std::span<const Parameter> parameters) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters) sum += parameter.shape.numel();
  return sum;
}

std::vector<std::string> parameter_names(std::span<const Unit> units) {
  std::vector<std::string> names;
  for (const Parameter& parameter : distinct_parameters(units)) names.push_back(parameter.name);
  return names;
}

namespace {

void check_patterns(const std::vector<std::string>& patterns, std::span<const Unit> units, const char* what) {
  const std::vector<std::string> names = parameter_names(units);
  for (const std::string& pattern : patterns)
    require<InputError>(
        std::ranges::any_of(names, [&](const std::string& name) { return matches_any({pattern}, name); }), what, " '",
        pattern, "' matches no parameter of the model; ", suggestion(pattern, names));
}

/// Throws InputError for absent fields that the unit does not have.
void check_fields(const Unit& unit) {
  const std::size_t fields = unit.parameters.size() + unit.absent.size();
  for (int next = 0; const int field : unit.absent) {
    require<InputError>(field >= next && static_cast<std::size_t>(field) < fields, "units: ", unit.name,
                        " lists field ", field, " as absent; its fields are numbered from 0 to ", fields - 1,
                        ", parameters and absent ones together, and absent ones are listed in ascending order");
    next = field + 1;
  }
}

}  // namespace

void check(std::span<const Unit> units) {
  require<InputError>(!units.empty(), "units: there are none; give each part that computes a unit with its tensors");
  std::map<std::string, std::tuple<Shape, bool, std::int64_t>> seen;
  for (std::size_t number = 0; number < units.size(); ++number) {
    const Unit& unit = units[number];
    require<InputError>(!unit.name.empty(), "units: unit ", number, " has no name");
    check_fields(unit);
    std::set<std::string_view> names;
    for (const Parameter& parameter : unit.parameters) {
      require_tensor_name(parameter.name, "units: " + unit.name);
      require<InputError>(names.insert(parameter.name).second, "units: parameter '", parameter.name, "' is twice in ",
                          unit.name);
      check_shape(message("units: parameter '", parameter.name, "' of ", unit.name), parameter.shape);
      const Shape& shape = parameter.shape;
      require<InputError>(parameter.block == 0 || (parameter.block > 0 && shape.numel() % parameter.block == 0),
                          "units: parameter '", parameter.name, "' of ", unit.name, " has ", shape.numel(),
                          " elements, and its block of ", parameter.block,
                          " does not divide them; give a block that does, or 0 for none");
      const auto& [first_shape, first_gathered, first_block] =
          seen.try_emplace(parameter.name, shape, unit.gathered, parameter.block).first->second;
      require<InputError>(first_shape == shape, "units: parameter '", parameter.name, "' of ", unit.name,
                          " has another shape than the one of that name before it; a name is one tensor, "
                          "which units may share");
      require<InputError>(first_gathered == unit.gathered, "units: parameter '", parameter.name, "' is in units ",
                          "that are gathered and in units that are not");
      require<InputError>(first_block == parameter.block, "units: parameter '", parameter.name, "' of ", unit.name,
                          " has a block of ", parameter.block, " elements, and the one of that name before it of ",
                          first_block, "; give both the same");
    }
  }
}

void check(const UnitOptions& options, std::span<const Unit> units) {
  require<InputError>(options.blocks_per_unit > 0, "units: ", options.blocks_per_unit,
                      " blocks make no unit; give at least 1");
  require<InputError>(options.merge_below >= 0, "units: merge_below is ", options.merge_below,
                      " elements; give 0 to merge nothing");
  require<InputError>(options.join_float_below >= 0, "units: join_float_below is ", options.join_float_below,
                      " elements; give 0 to join nothing");
  require<InputError>(options.offload_inputs >= 0 && options.offload_inputs <= 1, "units: a share of ",
                      options.offload_inputs, " of the blocks' inputs in host memory; give 0 to 1");
  require<InputError>(options.recompute || options.offload_inputs == 0,
                      "units: inputs in host memory are all that blocks may save; recompute the rest as well");
  check_patterns(options.replicated, units, "units: replicated pattern");
  check_patterns(options.frozen, units, "units: frozen pattern");
}

void check_shape(std::string_view what, const Shape& shape) {
  // The limit is low enough that byte counts summed over a few tensors do not overflow either.
  constexpr std::int64_t most = std::int64_t{1} << 56;
  std::int64_t elements = 1;
  require<InputError>(shape.rank >= 0 && shape.rank <= std::ssize(shape.extents), what, " has ", shape.rank,
                      " axes; a shape has 0 to ", shape.extents.size());
  for (std::int64_t axis = 0; axis < shape.rank; ++axis) {
    require<InputError>(shape[axis] >= 0, what, " has extent ", shape[axis], " on axis ", axis,
                        "; extents are at least 0");
    require<InputError>(!__builtin_mul_overflow(elements, shape[axis], &elements) && elements <= most, what,
                        " has more than 2^56 elements, which no memory holds");
  }
}

Order mirrored(std::span<const int> uses, std::optional<int> head) {
  Order order;
  for (const int unit : uses) order.list.push_back({sharding::Action::forward, unit});
  if (head) order.list.push_back({sharding::Action::loss, *head});
  for (auto use = uses.rbegin(); use != uses.rend(); ++use) order.list.push_back({sharding::Action::backward, *use});
  return order;
}

Order mirrored(std::initializer_list<int> uses, std::optional<int> head) {
  return mirrored(std::span(uses.begin(), uses.size()), head);
}

Order chain(int units) {
  require<InputError>(units >= 0, "order: a chain of ", units, " units; give at least 0");
  std::vector<int> uses(static_cast<std::size_t>(units));
  std::iota(uses.begin(), uses.end(), 0);
  return mirrored(uses);
}

}  // namespace fsdp
