// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/runners.hpp>

#include <algorithm>
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
  for (const buffer::AnyLayout& layout : {buffer::AnyLayout(buffer::PerParameter{}),
                                          {buffer::Flat{}},
                                          {buffer::Rows{}},
                                          {buffer::Owned{}},
                                          {buffer::Blocks{}},
                                          {buffer::Blocks{.elements = 40}}})
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
  if (stack == "watched") return run_watched(options);
  if (stack == "alternating") return run_alternating(options);
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
  static const Runners compiled = [] {
    Runners all = variants();
#ifndef TESSERA_TEST_FEWER_STACKS
    all.merge(strategy_types());
#endif
    return all;
  }();
  const std::string kind = listed_text(any_strategy(strategy), true);
  const auto found = compiled.find(kind + rest);
  require<InputError>(found != compiled.end(), "no stack of the tests is called '", stack, "'");
  return found->second(chosen);
}

}  // namespace fsdp::test
