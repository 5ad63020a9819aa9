// SPDX-License-Identifier: Apache-2.0
#include "stack_lines.hpp"

#include <map>
#include <string_view>
#include <utility>
#include <variant>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_parts.hpp>
#include <tessera/fsdp/core/policy_text.hpp>

#include "../../fsdp/core/split.hpp"

namespace fsdp::cli {
namespace {

/// What differs from the usual, in braces. C++ wants it in the order of the struct's members: that of their addresses.
std::string braces(const PolicyParts& parts) {
  std::map<const void*, std::string> fields;
  for (const PolicyParts::Part& part : parts.list()) {
    if (part.value == nullptr) continue;
    const PolicyNumber& number = part.number;
    const std::int64_t value = part.get(part.value);
    if (number.kind.empty() && value == number.usual) continue;
    const std::string said = number.is_bytes && value == memory_left ? "fsdp::memory_left" : std::to_string(value);
    fields[part.value] = message(".", number.member, " = ", number.option.empty() ? said : std::string(number.option));
  }
  std::string text;
  for (const auto& [value, field] : fields) text += (text.empty() ? "{" : ", ") + field;
  return text.empty() ? "" : text + "}";
}

const char* type_of(LayoutChoice layout) {
  const char* const types[] = {"", "fsdp::buffer::PerParameter", "fsdp::buffer::Flat", "fsdp::buffer::Rows",
                               "fsdp::buffer::Owned"};
  return types[static_cast<std::size_t>(layout)];
}

/// A type whose base, its first part, has the value.
Spelled derived(std::string type, const std::string& value) {
  return {std::move(type), value.empty() ? "" : "{" + value + "}"};
}

/// Spells strategies in another layout, if that is not `own`.
struct Spelling {
  LayoutChoice layout;

  template <class S>
  static std::string type(const S&) {
    const std::string name(type_name<S>());
    return name.find("::") == std::string::npos ? "fsdp::" + name : name;  // g++ leaves our own namespace out
  }
  template <ReshardAfterForward reshard>
  static std::string type(const FullyShard<reshard>&) {
    if (reshard == ReshardAfterForward::yes) return "fsdp::FullyShard<>";
    return message(
        "fsdp::FullyShard<fsdp::ReshardAfterForward::", reshard == ReshardAfterForward::no ? "no" : "to_group", ">");
  }
  template <class S>
  static Spelled plain(S strategy) {
    PolicyParts parts;
    parts.part(strategy);
    return {type(strategy), braces(parts)};
  }
  template <class S>
  static Spelled plain(const Reproducible<S>& strategy) {
    const Spelled inner = plain(static_cast<const S&>(strategy));
    return derived(message("fsdp::Reproducible<", inner.type, ">"),
                   message(inner.value.empty() ? "{}" : inner.value, ", ", strategy.pieces));
  }

  template <class S>
  Spelled operator()(const S& strategy) const {
    const Spelled own = plain(strategy);
    if (layout == LayoutChoice::own) return own;
    return derived(message("fsdp::WithLayout<", own.type, ", ", type_of(layout), ">"), own.value);
  }
  template <class... S>
  Spelled operator()(const RunTimeStrategy<S...>& strategy) const {
    return std::visit(*this, strategy.strategy);
  }
  template <class S, OptimizerAcross optimizer>
  Spelled operator()(const HybridShard<S, optimizer>& strategy) const {
    const Spelled inner = (*this)(strategy.inner);
    const bool full = optimizer == OptimizerAcross::sharded;
    return {message("fsdp::HybridShard<", inner.type, full ? ", fsdp::OptimizerAcross::sharded" : "", ">"),
            message("{.group = ", strategy.group, inner.value.empty() ? "" : ", .inner = ", inner.value, "}")};
  }
};

const char* type_of(const CommChoice& comm) {
  const char* const types[] = {"fsdp::comm::Self<>", "fsdp::comm::Threads<>", "fsdp::comm::Mpi<>",
                               "fsdp::comm::Nccl<>"};
  return types[static_cast<std::size_t>(comm.kind)];
}

const char* type_of(PrecisionChoice precision) {
  const char* const types[] = {"fsdp::Fp32", "fsdp::Bf16Mixed", "fsdp::Bf16Wire<fsdp::Bf16Mixed>"};
  return types[static_cast<std::size_t>(precision)];
}

/// `budget:auto` is known at run time only.
Spelled spelled(const tiling::RunTimeTiling& tiling) {
  if (tiling.asks_for_memory())
    return {"fsdp::tiling::RunTimeTiling", "fsdp::tiling::RunTimeTiling::budget_of_memory()"};
  const std::string text = tiling.text();
  const std::vector<std::string_view> parts = split_at(text, ':');
  if (parts.size() == 1) return {"fsdp::tiling::Untiled"};
  static const std::map<std::string_view, const char*> types = {
      {"tiles", "StaticTiles"}, {"tokens", "TokensPerTile"}, {"budget", "StaticBudget"}};
  return {message("fsdp::tiling::", types.at(parts[0]), "<", parts[1], ">")};
}

}  // namespace

Spelled spelled_sharding(const ShardingChoice& choice, OffloadChoice offload) {
  const Spelled plain = std::visit(Spelling{other_layout(choice)}, choice.strategy);
  return offload == OffloadChoice::none ? plain : derived("fsdp::Offload<" + plain.type + ">", plain.value);
}

std::string name_of_comm(const CommChoice& comm) {
  const std::string text = to_text(comm);
  return std::string(split_at(text, ':').front());
}

std::string stack_lines(const StackChoice& choice, bool shards_sequences) {
  const Spelled sharding = spelled_sharding(choice.sharding, choice.offload), tiling = spelled(choice.tiling);
  std::string values;
  if (!sharding.value.empty() || !tiling.value.empty())
    values = ", " + (sharding.value.empty() ? "{}" : sharding.value);
  if (!tiling.value.empty()) values += ", " + tiling.value;
  const LayoutChoice layout = other_layout(choice.sharding);
  const char* const header = layout == LayoutChoice::rows    ? "  #include <tessera/fsdp/buffer/rows.hpp>\n"
                             : layout == LayoutChoice::owned ? "  #include <tessera/fsdp/buffer/owned.hpp>\n"
                                                             : "";
  return message("  #include <tessera/comm/", name_of_comm(choice.comm), ".hpp>\n", header,
                 "  #include <tessera/trainer/train_main.hpp>\n", "  using Stack = fsdp::Stack<", sharding.type, ", ",
                 type_of(choice.comm), ", ", type_of(choice.precision), ", ", tiling.type,
                 shards_sequences ? ", fsdp::Ulysses" : "", ">;\n", "  int main(int argc, char** argv) {\n",
                 "    return fsdp::train_main<fsdp::Llama<Stack>>(argc, argv", values, "); }");
}

std::optional<std::string> cmake_name(const StackChoice&) { return std::nullopt; }

std::string how_to_compile(const StackChoice& choice) {
  const std::optional<std::string> name = cmake_name(choice);
  return message("this program has no such stack: ",
                 name ? message("CMake adds it by -DTESSERA_STACKS=\"default;", *name, "\"") : "compile its C++");
}

}  // namespace fsdp::cli
