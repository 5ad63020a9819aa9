// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/runners.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <variant>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>

#include <support/any_strategy.hpp>
#include <support/stacks/run_time.hpp>

namespace fsdp::test {

namespace {

/// The strategy in a stack's name, such as "fsdp2:2" in "fsdp2:2/bf16".
std::string_view strategy_of(std::string_view stack) { return stack.substr(0, stack.find('/')); }

buffer::AnyLayout layout_of(std::string_view name) {
  for (const buffer::AnyLayout& layout :
       {buffer::AnyLayout(buffer::PerParameter{}), {buffer::Flat{}}, {buffer::Rows{}}, {buffer::Owned{}}})
    if (layout.text() == name) return layout;
  throw InputError(message("no layout is called '", name, "'"));
}

}  // namespace

std::int64_t ranks_per_group(std::string_view stack) {
  return std::visit(
      []<class S>(const S& strategy) {
        if constexpr (mesh_axes_of<S> == 2) return std::max(strategy.ranks_per_group(), 1);
        return 1;
      },
      any_strategy(strategy_of(stack)));
}

RunResults run(std::string_view stack, const RunOptions& options) {
  static const std::map<std::string, RunResults (*)(const RunOptions&)> compiled = {
#ifndef TESSERA_TEST_FEWER_STACKS
      {"fsdp2", run_fsdp2},
      {"fsdp2:no-reshard", run_fsdp2_no_reshard},
      {"fsdp2:K", run_fsdp2_group},
      {"zero1", run_zero1},
      {"zero2", run_zero2},
      {"zero3", run_zero3},
      {"hybrid:K", run_hybrid},
      {"hybrid:K:full", run_hybrid_full},
#endif
      {"fsdp2/owned", run_fsdp2_owned},
      {"fsdp2/bf16", run_fsdp2_bf16},
      {"fsdp2/offload", run_fsdp2_offload},
      {"fsdp2/bf16-wire", run_fsdp2_bf16_wire},
      {"hybrid:K:full/offload/bf16", run_hybrid_offload_bf16},
      {"hybrid:K:full/bf16", run_hybrid_full_bf16},
      {"replicated", run_replicated},
  };
  if (stack == "watched") return run_watched(options);
  RunOptions chosen = options;
  const std::string_view strategy = strategy_of(stack);
  chosen.sharding = strategy;
  std::string rest(stack.substr(strategy.size()));
  constexpr std::string_view layout = "/layout=";
  if (rest.starts_with(layout)) {
    const std::size_t end = std::min(rest.find('/', layout.size()), rest.size());
    chosen.layout = layout_of(std::string_view(rest).substr(layout.size(), end - layout.size()));
    rest.erase(0, end);
  }
  if (rest == "/run-time") return threads_stacks(chosen);
#ifdef TESSERA_TEST_FEWER_STACKS
  if (rest.empty()) return threads_stacks(chosen);
#else
  if (rest == "/by-placement") return run_by_placement(chosen);
  if (rest == "/run-time/offload") return run_offload(chosen);
  if (rest == "/queued") return queued_stacks(chosen);
  if (rest == "/nccl") return nccl_stacks(chosen);
#endif
  const std::string kind = listed_text(any_strategy(strategy), true);
  const auto found = compiled.find(kind + rest);
  require<InputError>(found != compiled.end(), "no stack of the tests is called '", stack, "'");
  return found->second(chosen);
}

}  // namespace fsdp::test
