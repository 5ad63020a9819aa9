// SPDX-License-Identifier: Apache-2.0
#include "stack_choice.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/nearest.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/training/launch_options.hpp>
#include <tessera/trainer/flags/byte_count.hpp>
#include <tessera/trainer/flags/ranges.hpp>

namespace fsdp::cli {
namespace {

const std::vector<std::string> sharding_names = {"fsdp2",
                                                 "fsdp2:no-reshard",
                                                 "fsdp2:K",
                                                 "fsdp2:deferred",
                                                 "fsdp2:prefetch=N",
                                                 "fsdp2:pieces=N",
                                                 "zero1",
                                                 "zero2",
                                                 "zero3",
                                                 "zero3:persist=N",
                                                 "zero3:live=N",
                                                 "hybrid:K",
                                                 "hybrid:K:full",
                                                 "hybrid:K:zero3",
                                                 "replicated"};
const std::vector<std::string> layout_names = {"default", "per-parameter", "flat", "rows", "owned"};
const std::vector<std::string> precision_names = {"fp32", "bf16", "bf16:wire=bf16"};
const std::vector<std::string> offload_names = {"none", "optimizer"};
const std::vector<std::string> tiling_names = {"off", "tiles:N", "tokens:N", "budget:BYTES", "budget:auto"};
const std::vector<std::string> comm_names = {"self", "threads:N", "mpi", "nccl"};

[[noreturn]] void unknown(std::string_view flag, std::string_view text, const std::vector<std::string>& names) {
  throw InputError(message("--", flag, " ", shortened(text), " is not known; ", suggestion(text, names)));
}

constexpr std::int64_t most_int = std::numeric_limits<std::int32_t>::max();  // the policies' numbers are int

/// Returns the number after `prefix`, at least 1; 0 if the text is anything else. Throws InputError, which quotes the
/// flag's whole value `given`, if the number is above `most`.
std::int64_t number_after(std::string_view text, std::string_view prefix, std::int64_t most, std::string_view flag,
                          std::string_view given) {
  if (!text.starts_with(prefix)) return 0;
  const std::string_view digits = text.substr(prefix.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (end != digits.data() + digits.size()) return 0;
  const bool positive = error == std::errc() ? number >= 1 : digits.front() != '-';
  if (digits.empty() || !positive) return 0;
  require<InputError>(error == std::errc() && number <= most, "--", flag, " ", shortened(given),
                      ": the number must be at most ", most);
  return number;
}

/// Returns the number of `part`, which begins with pieces=. Throws InputError, which quotes the flag's whole value
/// `given`, unless a strategy of this kind can cut a step into so many pieces.
std::int64_t pieces_after(std::string_view part, ShardingChoice::Kind kind, std::string_view given) {
  using Kind = ShardingChoice::Kind;
  constexpr std::string_view key = "pieces=";
  const std::int64_t pieces = number_after(part, key, train::most_sequences, "sharding", given);
  require<InputError>(pieces > 0, "--sharding ", shortened(given), ": a step has at least 1 piece; write ", key,
                      "N with a whole number from 1 on, such as ", key, "8");
  require<InputError>(kind != Kind::hybrid && kind != Kind::replicated, "--sharding ", shortened(given), ": ",
                      kind == Kind::hybrid ? "each group of ranks adds up its gradients first"
                                           : "each rank adds up its gradients first",
                      ", so that results would depend on the number of ranks; take fsdp2:pieces=", pieces,
                      ", zero2:pieces=", pieces, " or zero3:pieces=", pieces);
  return pieces;
}

std::string with_number(std::string_view name, std::int64_t number) {
  return std::string(name) + ":" + std::to_string(number);
}

}  // namespace

ShardingChoice parse_sharding(std::string_view text) {
  using Kind = ShardingChoice::Kind;
  static const std::map<std::string_view, Kind> kinds = {{"fsdp2", Kind::fsdp2},   {"zero1", Kind::zero1},
                                                         {"zero2", Kind::zero2},   {"zero3", Kind::zero3},
                                                         {"hybrid", Kind::hybrid}, {"replicated", Kind::replicated}};
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;; rest.remove_prefix(parts.back().size() + 1)) {
    parts.push_back(rest.substr(0, rest.find(':')));
    if (parts.back().size() == rest.size()) break;
  }
  const auto kind = kinds.find(parts.front());
  if (kind == kinds.end()) unknown("sharding", text, sharding_names);
  parts.erase(parts.begin());
  ShardingChoice choice{.kind = kind->second};
  const bool hybrid = choice.kind == Kind::hybrid;
  const auto inner = std::ranges::find_if(parts, [&](std::string_view part) {
    const auto found = kinds.find(part);
    return hybrid && found != kinds.end() && found->second != Kind::hybrid && found->second != Kind::replicated;
  });
  if (inner != parts.end()) {
    choice.inner = kinds.at(*inner);
    parts.erase(inner);
  }
  const Kind held = hybrid ? choice.inner : choice.kind;
  for (const std::string_view part : parts) {
    const auto number = [&](std::string_view key) {
      return number_after(part, key, key == "persist=" || key == "live=" ? train::most_elements : most_int, "sharding",
                          text);
    };
    if (part.starts_with("pieces=")) {
      require<InputError>(choice.pieces == 0, "--sharding ", shortened(text),
                          ": says twice how many pieces a step has; ", "write pieces=N once");
      choice.pieces = pieces_after(part, choice.kind, text);
    } else if (part == "no-reshard" && held == Kind::fsdp2 && (hybrid || choice.number == 0))
      choice.reshard = false;
    else if (part == "full" && hybrid)
      choice.full = true;
    else if (part == "deferred" && held == Kind::fsdp2)
      choice.deferred = true;
    else if ((hybrid || (held == Kind::fsdp2 && choice.reshard)) && choice.number == 0 && number("") > 0)
      choice.number = number("");
    else if ((held == Kind::fsdp2 || held == Kind::zero3) && (number("prefetch=") > 0 || part == "prefetch=0"))
      choice.prefetch_depth = number("prefetch=");
    else if (held == Kind::zero3 && number("persist=") > 0)
      choice.persistence = number("persist=");
    else if (held == Kind::zero3 && number("live=") > 0)
      choice.live_bound = number("live=");
    else
      unknown("sharding", text, sharding_names);
  }
  require<InputError>(!hybrid || choice.number > 0, "--sharding ", text,
                      " does not say how many ranks hold a model together; write hybrid:K");
  return choice;
}

LayoutChoice parse_layout(std::string_view text) {
  const auto found = std::ranges::find(layout_names, text);
  if (found == layout_names.end()) unknown("layout", text, layout_names);
  return static_cast<LayoutChoice>(found - layout_names.begin());
}

PrecisionChoice parse_precision(std::string_view text) {
  if (text == "fp32") return PrecisionChoice::fp32;
  if (text == "bf16") return PrecisionChoice::bf16;
  if (text == "bf16:wire=bf16") return PrecisionChoice::bf16_wire;
  unknown("precision", text, precision_names);
}

OffloadChoice parse_offload(std::string_view text) {
  if (text == "none") return OffloadChoice::none;
  if (text == "optimizer") return OffloadChoice::optimizer;
  unknown("offload", text, offload_names);
}

TilingChoice parse_tiling(std::string_view text) {
  using Kind = TilingChoice::Kind;
  if (text == "off") return {};
  if (const std::int64_t n = number_after(text, "tiles:", most_int, "tiling", text); n > 0)
    return {.kind = Kind::tiles, .number = n};
  if (const std::int64_t n = number_after(text, "tokens:", most_int, "tiling", text); n > 0)
    return {.kind = Kind::tokens, .number = n};
  if (text == "budget:auto") return {.kind = Kind::budget};
  if (text.starts_with("budget:"))
    if (const std::int64_t n = train::bytes_of(text.substr(7)); n > 0) return {.kind = Kind::budget, .number = n};
  unknown("tiling", text, tiling_names);
}

CommChoice parse_comm(std::string_view text) {
  using Kind = CommChoice::Kind;
  if (text == "self") return {.kind = Kind::self};
  if (text == "mpi") return {.kind = Kind::mpi};
  if (text == "nccl") return {.kind = Kind::nccl};
  if (const std::int64_t n = number_after(text, "threads:", train::most_started_ranks, "comm", text); n > 0)
    return {.kind = Kind::threads, .ranks = n};
  unknown("comm", text, comm_names);
}

ShardingChoice inner_of(const ShardingChoice& hybrid) {
  ShardingChoice inner = hybrid;
  inner.kind = hybrid.inner;
  inner.inner = ShardingChoice().inner;
  inner.number = 0;
  inner.full = false;
  return inner;
}

LayoutChoice other_layout(const ShardingChoice& choice) {
  using Kind = ShardingChoice::Kind;
  const Kind held = choice.kind == Kind::hybrid ? choice.inner : choice.kind;
  const LayoutChoice own = held == Kind::fsdp2 ? LayoutChoice::per_parameter : LayoutChoice::flat;
  return choice.layout == own ? LayoutChoice::own : choice.layout;
}

namespace {

/// Returns the name of the strategy's type, without the layout.
std::string strategy_name(const ShardingChoice& choice) {
  using Kind = ShardingChoice::Kind;
  switch (choice.kind) {
    case Kind::zero1: return "zero1";
    case Kind::zero2: return "zero2";
    case Kind::zero3: return "zero3";
    case Kind::replicated: return "replicated";
    case Kind::hybrid: {
      const std::string inner = strategy_name(inner_of(choice));
      return std::string(choice.full ? "hybrid:K:full" : "hybrid:K") + (inner == "fsdp2" ? "" : ":" + inner);
    }
    case Kind::fsdp2: break;
  }
  if (choice.number > 0) return "fsdp2:K";
  return choice.reshard ? "fsdp2" : "fsdp2:no-reshard";
}

}  // namespace

std::string kind_name(const ShardingChoice& choice) {
  const LayoutChoice other = other_layout(choice);
  return strategy_name(choice) + (choice.pieces > 0 ? ":pieces=V" : "") +
         (other == LayoutChoice::own ? "" : ":layout=" + name_of(other));
}

std::string name_of(const ShardingChoice& choice) {
  std::string name = strategy_name(choice);
  if (const auto at = name.find('K'); at != std::string::npos) name.replace(at, 1, std::to_string(choice.number));
  if (choice.deferred) name += ":deferred";
  if (choice.prefetch_depth != 1) name += ":prefetch=" + std::to_string(choice.prefetch_depth);
  if (choice.persistence > 0) name += ":persist=" + std::to_string(choice.persistence);
  if (choice.live_bound > 0) name += ":live=" + std::to_string(choice.live_bound);
  if (choice.pieces > 0) name += ":pieces=" + std::to_string(choice.pieces);
  return name;
}

std::string name_of(LayoutChoice choice) { return layout_names[static_cast<std::size_t>(choice)]; }
std::string name_of(PrecisionChoice choice) { return precision_names[static_cast<std::size_t>(choice)]; }
std::string name_of(OffloadChoice choice) { return offload_names[static_cast<std::size_t>(choice)]; }

std::string name_of(const TilingChoice& choice) {
  using Kind = TilingChoice::Kind;
  switch (choice.kind) {
    case Kind::tiles: return with_number("tiles", choice.number);
    case Kind::tokens: return with_number("tokens", choice.number);
    case Kind::budget: return choice.number > 0 ? with_number("budget", choice.number) : "budget:auto";
    case Kind::off: break;
  }
  return "off";
}

std::string name_of(const CommChoice& choice) {
  using Kind = CommChoice::Kind;
  switch (choice.kind) {
    case Kind::self: return "self";
    case Kind::mpi: return "mpi";
    case Kind::nccl: return "nccl";
    case Kind::threads: break;
  }
  return with_number("threads", choice.ranks);
}

tiling::RunTime policy_of(const TilingChoice& choice) {
  switch (choice.kind) {
    case TilingChoice::Kind::tiles: return tiling::RunTime::tiles(choice.number);
    case TilingChoice::Kind::tokens: return tiling::RunTime::tokens(choice.number);
    case TilingChoice::Kind::off: return tiling::Untiled{};
    case TilingChoice::Kind::budget: break;
  }
  require<InputError>(choice.number > 0, "--tiling budget:auto is solved by `tessera train` alone; give bytes, ",
                      "as in budget:512MiB");
  return tiling::RunTime::budget(choice.number);
}

tiling::RunTime training_policy_of(const TilingChoice& choice) {
  const bool open = choice == TilingChoice{.kind = TilingChoice::Kind::budget};
  return open ? tiling::RunTime::budget_of_memory() : policy_of(choice);
}

void from_text(std::string_view, std::string_view text, ShardingChoice& value) {
  const LayoutChoice layout = value.layout;  // is set by --layout
  value = parse_sharding(text);
  value.layout = layout;
}
void from_text(std::string_view, std::string_view text, LayoutChoice& value) { value = parse_layout(text); }
void from_text(std::string_view, std::string_view text, PrecisionChoice& value) { value = parse_precision(text); }
void from_text(std::string_view, std::string_view text, OffloadChoice& value) { value = parse_offload(text); }
void from_text(std::string_view, std::string_view text, TilingChoice& value) { value = parse_tiling(text); }
void from_text(std::string_view, std::string_view text, CommChoice& value) { value = parse_comm(text); }

std::string to_text(const ShardingChoice& value) { return name_of(value); }
std::string to_text(LayoutChoice value) { return name_of(value); }
std::string to_text(PrecisionChoice value) { return name_of(value); }
std::string to_text(OffloadChoice value) { return name_of(value); }
std::string to_text(const TilingChoice& value) { return name_of(value); }
std::string to_text(const CommChoice& value) { return name_of(value); }

}  // namespace fsdp::cli
