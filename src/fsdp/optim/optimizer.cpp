// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/optimizer.hpp>

#include <algorithm>
#include <array>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/module/module_plan.hpp>

namespace fsdp::optim {

void require_constant(bool holds, std::string_view name, double value, std::string_view range) {
  require<InputError>(holds && is_finite(value), "--", name, " ", exact_text(value), " must be ", range);
}

void require_state_names(std::string_view optimizer, const Parameter& parameter, std::span<const StateSpec> states) {
  for (std::size_t i = 0; i < states.size(); ++i) {
    const std::string_view name = states[i].name;
    require<InputError>(
        !name.empty() && name.find('.') == name.npos && std::ranges::count(states, name, &StateSpec::name) == 1,
        "the optimizer ", optimizer, " gives state ", i, " of '", parameter.name, "' the name '", name,
        "'; checkpoints store states as PARAMETER.STATE, so give each a different name without a dot");
    const StateFormat& format = *states[i].format;
    const std::int64_t last = format.bytes(parameter.shape.numel()), whole = format.bytes(format.block);
    require<InputError>(format.type != DType::u8 || (last % 4 == 0 && whole % 4 == 0), "the optimizer ", optimizer,
                        " encodes state '", name, "' of '", parameter.name, "' as ", format.text(), ", whose ",
                        format.block, " elements are ", whole, " bytes, and all ", parameter.shape.numel(), " are ",
                        last, "; states are digested as words of 4 bytes, so pad each block to a multiple of 4");
  }
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

void require_blocks(std::string_view optimizer, const ModuleState& module, const StepWork& step) {
  const Reference cut = module.first_cut(step);
  if (!cut.present()) return;
  const bool alone = module.parts().size() == 1;
  // Owned keeps tensors whole only where groups of ranks do not divide their parts again.
  const bool across =
      module.group_list()[static_cast<std::size_t>(cut.group)]->facts().across == sharding::Across::shard;
  const std::string part = module.text_of_part(module.part_index(static_cast<std::size_t>(cut.group)));
  const Parameter& parameter = module.parameter(cut);
  const std::int64_t block = step.block_of(parameter);
  const bool whole = block == parameter.shape.numel();
  throw InputError(
      message("the optimizer ", optimizer, " works on ",
              whole ? "whole matrices" : message("blocks of ", block, " elements"), ", and the strategy ",
              alone ? "" : message("'", part, "' "), "cuts ", whole ? "" : "inside of one of ", "\"", parameter.name,
              "\" over ranks; take a layout that keeps them whole (--layout ", across ? "blocks" : "owned or blocks",
              alone    ? ""
              : across ? ", or :layout=blocks in --sharding-of"
                       : ", or :layout=owned or :layout=blocks in --sharding-of",
              across ? "), hybrid:K without :full and --layout owned" : ")", ", or --sharding replicated"));
}

StatePlaces places_of(std::span<const StatePiece> pieces, std::size_t state, std::int64_t trained) {
  constexpr std::int64_t word = sizeof(float);  // pieces start at words
  const auto start_of_next = [&](auto from) {
    const auto next = std::find_if(from, pieces.end(), [](const StatePiece& piece) { return piece.trainable; });
    return next == pieces.end() ? trained : next->resting;
  };
  StatePlaces places{.starts = {}, .bytes = word * start_of_next(pieces.begin())};
  for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
    places.starts.push_back(places.bytes);
    if (piece->states.size() <= state) continue;
    const StateSpec& own = piece->states[state];
    places.bytes =
        checked_add(places.bytes, own.format->type == DType::f32 ? word * (start_of_next(piece + 1) - piece->resting)
                                                                 : resting_bytes(own, piece->count));
  }
  return places;
}

std::span<const StateSpec> AdamW::states(const Parameter& parameter) const {
  static constexpr std::array<StateSpec, 2> plain = {"exp_avg", "exp_avg_sq"};
  static constexpr std::array<StateSpec, 2> half = {StateSpec("exp_avg", state_format<Plain<fsdp::bf16>>),
                                                    StateSpec("exp_avg_sq", state_format<Plain<fsdp::bf16>>)};
  static constexpr std::array<StateSpec, 2> dynamic = {StateSpec("exp_avg", state_format<Dynamic8<256>>),
                                                       StateSpec("exp_avg_sq", state_format<Dynamic8<256, true>>)};
  if (moments == Moments::float32 || parameter.shape.numel() < least_coded) return plain;
  return moments == Moments::bf16 ? half : dynamic;
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
