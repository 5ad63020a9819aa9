// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's units: its entry, its blocks and its head. This is the only list of a model's parameters.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/one_of.hpp>

namespace fsdp {

/// Returns the units of a model: "embedding", "block 0", ..., "head".
template <class Model>
std::vector<Unit> units_of(const Model& model) {
  using Local = typename Model::Local;
  using Entry = typename Model::Entry;
  const auto unit = []<class M>(std::string name, const M& module, const std::string& prefix, bool needs) {
    return unit_of<M::template FieldsOf>(std::move(name), module.parameters(), prefix, needs);
  };
  std::vector<Unit> units;
  require<InputError>(model.blocks() >= 0, "model: it has ", model.blocks(), " blocks; blocks() is at least 0");
  units.push_back(unit("embedding", model.entry(), "",
                       !nn::EntryWithoutWeightsInBackward<Entry, Local, nn::InputOf<typename Model::Batch, Local>>));
  for (int i = 0; i < model.blocks(); ++i)
    nn::visit_kind(model.block(i), [&]<class Block>(const Block& block) {
      units.push_back(
          unit("block " + std::to_string(i), block, model.prefix(i), !nn::BlockWithoutWeightsInBackward<Block, Local>));
    });
  units.push_back(unit("head", model.head(), "", true));
  return units;
}

/// Returns every parameter of a model once, in order.
template <class Model>
std::vector<Parameter> parameter_list(const Model& model) {
  return distinct_parameters(units_of(model));
}
/// Returns the number of elements of all parameters of a model.
template <class Model>
std::int64_t parameter_count(const Model& model) {
  return distinct_elements(units_of(model));
}
/// Returns the number of trained elements: those not frozen by UnitOptions, groups or adapters.
template <class Model>
std::int64_t trained_count(const Model& model) {
  return trained_elements(units_of(model), model.units());
}

}  // namespace fsdp
