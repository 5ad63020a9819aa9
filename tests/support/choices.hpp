// SPDX-License-Identifier: Apache-2.0
/// @file
/// The program's options, parsed from the text of their flags.
#pragma once

#include <string_view>

#include "src/program/cli/stack_choice.hpp"

namespace fsdp::cli {

template <class Choice>
Choice read_choice(std::string_view flag, std::string_view text) {
  Choice choice = {};
  from_text(flag, text, choice);
  return choice;
}

inline PrecisionChoice parse_precision(std::string_view text) {
  return read_choice<PrecisionChoice>("precision", text);
}

inline OffloadChoice parse_offload(std::string_view text) { return read_choice<OffloadChoice>("offload", text); }
inline LayoutChoice parse_layout(std::string_view text) { return read_choice<LayoutChoice>("layout", text); }
inline CommChoice parse_comm(std::string_view text) { return read_choice<CommChoice>("comm", text); }
inline tiling::RunTimeTiling parse_tiling(std::string_view text) {
  return read_choice<tiling::RunTimeTiling>("tiling", text);
}

}  // namespace fsdp::cli
