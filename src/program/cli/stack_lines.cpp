// SPDX-License-Identifier: Apache-2.0
#include "stack_lines.hpp"

#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::cli {
namespace {

using Kind = ShardingChoice::Kind;

/// A field and its value; empty if it has its default.
using Field = std::pair<const char*, std::string>;

std::string number(std::int64_t value, std::int64_t usual) { return value == usual ? "" : std::to_string(value); }

std::string braces(const std::vector<Field>& fields) {
  std::string text;
  for (const auto& [name, value] : fields)
    if (!value.empty()) text += message(text.empty() ? "{" : ", ", ".", name, " = ", value);
  return text.empty() ? "" : text + "}";
}

Spelled spelled_fsdp2(const ShardingChoice& choice) {
  const char* const reshard = choice.number > 0 ? "fsdp::ReshardAfterForward::to_group"
                              : choice.reshard  ? ""
                                                : "fsdp::ReshardAfterForward::no";
  return {message("fsdp::FullyShard<", reshard, ">"),
          braces({{"prefetch_depth", number(choice.prefetch_depth, 1)},
                  {"reduce", choice.deferred ? "fsdp::ReduceGradients::last_micro_batch" : ""},
                  {"group", number(choice.number, 0)}})};
}

Spelled spelled_zero3(const ShardingChoice& choice) {
  return {"fsdp::Zero3", braces({{"prefetch_depth", number(choice.prefetch_depth, 1)},
                                 {"persistence_threshold", number(choice.persistence, 0)},
                                 {"live_bound", number(choice.live_bound, 0)}})};
}

const char* type_of(LayoutChoice layout) {
  switch (layout) {
    case LayoutChoice::flat: return "fsdp::buffer::Flat";
    case LayoutChoice::rows: return "fsdp::buffer::Rows";
    case LayoutChoice::owned: return "fsdp::buffer::Owned";
    case LayoutChoice::per_parameter:
    case LayoutChoice::own: break;
  }
  return "fsdp::buffer::PerParameter";
}

/// A type whose base, its first part, has the value.
Spelled derived(std::string type, const std::string& value) {
  return {std::move(type), value.empty() ? "" : "{" + value + "}"};
}

Spelled spelled(const ShardingChoice& choice) {
  if (choice.kind == Kind::hybrid) {
    const Spelled inner = spelled(inner_of(choice));
    return {message("fsdp::HybridShard<", inner.type, choice.full ? ", fsdp::OptimizerAcross::sharded" : "", ">"),
            braces({{"group", std::to_string(choice.number)}, {"inner", inner.value}})};
  }
  Spelled own = choice.kind == Kind::fsdp2   ? spelled_fsdp2(choice)
                : choice.kind == Kind::zero1 ? Spelled{"fsdp::Zero1"}
                : choice.kind == Kind::zero2 ? Spelled{"fsdp::Zero2"}
                : choice.kind == Kind::zero3 ? spelled_zero3(choice)
                                             : Spelled{"fsdp::Replicated"};
  if (choice.pieces > 0)
    own = derived(message("fsdp::Reproducible<", own.type, ">"),
                  message(own.value.empty() ? "{}" : own.value, ", ", choice.pieces));
  const LayoutChoice other = other_layout(choice);
  if (other == LayoutChoice::own) return own;
  return derived(message("fsdp::WithLayout<", own.type, ", ", type_of(other), ">"), own.value);
}

/// The communicator's name, as in its header's.
std::string name_of_comm(const CommChoice& comm) {
  switch (comm.kind) {
    case CommChoice::Kind::self: return "self";
    case CommChoice::Kind::mpi: return "mpi";
    case CommChoice::Kind::nccl: return "nccl";
    case CommChoice::Kind::threads: break;
  }
  return "threads";
}

const char* type_of(const CommChoice& comm) {
  switch (comm.kind) {
    case CommChoice::Kind::self: return "fsdp::comm::Self<>";
    case CommChoice::Kind::mpi: return "fsdp::comm::Mpi<>";
    case CommChoice::Kind::nccl: return "fsdp::comm::Nccl<>";
    case CommChoice::Kind::threads: break;
  }
  return "fsdp::comm::Threads<>";
}

const char* type_of(PrecisionChoice precision) {
  switch (precision) {
    case PrecisionChoice::fp32: return "fsdp::Fp32";
    case PrecisionChoice::bf16_wire: return "fsdp::Bf16Wire<fsdp::Bf16Mixed>";
    case PrecisionChoice::bf16: break;
  }
  return "fsdp::Bf16Mixed";
}

/// `budget:auto` is known at run time only.
Spelled spelled(const TilingChoice& tiling) {
  switch (tiling.kind) {
    case TilingChoice::Kind::tiles: return {message("fsdp::tiling::StaticTiles<", tiling.number, ">")};
    case TilingChoice::Kind::tokens: return {message("fsdp::tiling::TokensPerTile<", tiling.number, ">")};
    case TilingChoice::Kind::budget:
      if (tiling.number > 0) return {message("fsdp::tiling::StaticBudget<", tiling.number, ">")};
      return {"fsdp::tiling::RunTime", "fsdp::tiling::RunTime::budget_of_memory()"};
    case TilingChoice::Kind::off: break;
  }
  return {"fsdp::tiling::Untiled"};
}

}  // namespace

Spelled spelled_sharding(const ShardingChoice& choice, OffloadChoice offload) {
  const Spelled plain = spelled(choice);
  return offload == OffloadChoice::none ? plain : derived("fsdp::Offload<" + plain.type + ">", plain.value);
}

std::string stack_lines(const StackChoice& choice) {
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
                 type_of(choice.comm), ", ", type_of(choice.precision), ", ", tiling.type, ">;\n",
                 "  int main(int argc, char** argv) {\n", "    return fsdp::train_main<fsdp::Llama<Stack>>(argc, argv",
                 values, "); }");
}

std::optional<std::string> cmake_name(const StackChoice& choice) {
  const ShardingChoice& sharding = choice.sharding;
  const bool offloads = choice.offload != OffloadChoice::none;
  const bool grouped = sharding.kind == Kind::hybrid || (sharding.kind == Kind::fsdp2 && sharding.number > 0);
  if (offloads && (grouped || sharding.kind == Kind::replicated)) return std::nullopt;
  std::string name = sharding.kind == Kind::hybrid       ? (sharding.full ? "hybrid_full" : "hybrid")
                     : sharding.kind == Kind::replicated ? "replicated"
                     : sharding.kind == Kind::zero1      ? "zero1"
                     : sharding.kind == Kind::zero2      ? "zero2"
                     : sharding.kind == Kind::zero3      ? "zero3"
                     : sharding.number > 0               ? "fsdp2_group"
                                                         : "fsdp2";
  if (offloads) name += "_offload";
  const std::string precision =
      choice.precision == PrecisionChoice::bf16_wire ? "bf16_wire" : name_of(choice.precision);
  return message(name, "/", name_of_comm(choice.comm), "/", precision);
}

}  // namespace fsdp::cli
