// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/optimizer.hpp>

#include <algorithm>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/module/module_plan.hpp>

namespace fsdp::optim {

void require_constant(bool holds, std::string_view name, double value, std::string_view range) {
  require<InputError>(holds && is_finite(value), "--", name, " ", exact_text(value), " must be ", range);
}

void require_state_names(std::string_view optimizer, const Parameter& parameter,
                         std::span<const std::string_view> names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    require<InputError>(!names[i].empty() && std::count(names.begin(), names.end(), names[i]) == 1, "the optimizer ",
                        optimizer, " gives state ", i, " of '", parameter.name, "' the name '", names[i],
                        "'; checkpoints store states by name, so give each a different one");
}

void require_no_decays(std::string_view optimizer, GroupList groups) {
  for (const GroupTensors* const group : groups)
    for (const Parameter& parameter : group->parameters()) {
      const double decay = parameter.step.weight_decay.value_or(0);
      require<InputError>(decay == 0, "the optimizer ", optimizer,
                          " has one weight decay for all parameters that decay, and a group sets ", decay, " for '",
                          parameter.name,
                          "'; set 0 or nothing, or let the optimizer take Parameter::decay_of and say "
                          "static constexpr bool reads_decay = true");
    }
}

void require_whole(std::string_view optimizer, const ModuleState& module, const StepWork& step) {
  const Reference cut = module.first_cut(step);
  if (!cut.present()) return;
  const bool alone = module.parts().size() == 1;
  // Owned keeps tensors whole only where groups of ranks do not divide their parts again.
  const bool across =
      module.group_list()[static_cast<std::size_t>(cut.group)]->facts().across == sharding::Across::shard;
  const std::string part = module.text_of_part(module.part_index(static_cast<std::size_t>(cut.group)));
  throw InputError(
      message("the optimizer ", optimizer, " works on whole matrices, and the strategy ",
              alone ? "" : message("'", part, "' "), "cuts \"", module.parameter(cut).name,
              "\" over ranks; take a layout that keeps them whole (--layout ", across ? "blocks" : "owned or blocks",
              alone    ? ""
              : across ? ", or :layout=blocks in --sharding-of"
                       : ", or :layout=owned or :layout=blocks in --sharding-of",
              across ? "), hybrid:K without :full and --layout owned" : ")", ", or --sharding replicated"));
}

StatePlaces places_of(std::span<const StatePiece> pieces, std::size_t state, std::int64_t trained) {
  StatePlaces places;
  std::int64_t skipped = 0;  // number of elements of trained pieces without this state
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    places.starts.push_back(pieces[i].resting - skipped);
    if (!pieces[i].trainable || pieces[i].states > state) continue;
    const auto next = std::find_if(pieces.begin() + static_cast<std::ptrdiff_t>(i) + 1, pieces.end(),
                                   [](const StatePiece& piece) { return piece.trainable; });
    skipped += (next == pieces.end() ? trained : next->resting) - pieces[i].resting;  // includes padding
  }
  places.elements = trained - skipped;
  return places;
}

void AdamW::validate() const {
  require_constant(beta1 >= 0 && static_cast<float>(beta1) < 1, "beta1", beta1, "at least 0 and below 1 as a float");
  require_constant(beta2 >= 0 && static_cast<float>(beta2) < 1, "beta2", beta2, "at least 0 and below 1 as a float");
  require_constant(eps >= 1e-30 && eps <= 1, "eps", eps, "above 0, at least 1e-30 and at most 1");
  require_constant(weight_decay >= 0 && weight_decay <= 1000, "weight-decay", weight_decay,
                   "at least 0 and at most 1000");
}

void Sgd::validate() const {
  require_constant(momentum >= 0 && static_cast<float>(momentum) < 1, "momentum", momentum,
                   "at least 0 and below 1 as a float");
  require<InputError>(!nesterov || momentum > 0, "--nesterov looks ahead along the momentum, and --momentum is 0");
  require_constant(weight_decay >= 0 && weight_decay <= 1000, "weight-decay", weight_decay,
                   "at least 0 and at most 1000");
}

}  // namespace fsdp::optim
