// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/stack_choice.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <vector>

#include <fsdp/core/error.hpp>
#include <fsdp/core/nearest.hpp>

namespace fsdp::train {
namespace {

const std::vector<std::string> sharding_names = {"fsdp2", "fsdp2:no-reshard", "fsdp2:K",       "zero1",     "zero2",
                                                 "zero3", "hybrid:K",         "hybrid:K:full", "replicated"};
const std::vector<std::string> precision_names = {"fp32", "bf16"};
const std::vector<std::string> tiling_names = {"off", "tiles:N", "tokens:N", "budget:BYTES", "budget:auto"};
const std::vector<std::string> comm_names = {"self", "threads:N", "mpi", "nccl"};

[[noreturn]] void unknown(std::string_view flag, std::string_view text, const std::vector<std::string>& names) {
  throw InputError(message("--", flag, " ", text, " is not known; ", suggestion(text, names)));
}

/// The number after "PREFIX:", at least 1; 0 where the text is anything else.
std::int64_t number_after(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return 0;
  text.remove_prefix(prefix.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 1 ? number : 0;
}

/// "4096", "512MiB", "2GiB"; 0 where the text is anything else or more than an int64.
std::int64_t bytes_of(std::string_view text) {
  static constexpr std::array<std::string_view, 4> units = {"KiB", "MiB", "GiB", "TiB"};
  std::int64_t scale = 1;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (text.ends_with(units[i])) {
      text.remove_suffix(units[i].size());
      scale = std::int64_t{1} << (10 * (i + 1));
      break;
    }
  const std::int64_t number = number_after(text, "");
  return number <= std::numeric_limits<std::int64_t>::max() / scale ? number * scale : 0;
}

std::string with_number(std::string_view name, std::int64_t number) {
  return std::string(name) + ":" + std::to_string(number);
}

}  // namespace

ShardingChoice parse_sharding(std::string_view text) {
  using Kind = ShardingChoice::Kind;
  if (text == "fsdp2") return {};
  if (text == "fsdp2:no-reshard") return {.reshard = false};
  if (text == "zero1") return {.kind = Kind::zero1};
  if (text == "zero2") return {.kind = Kind::zero2};
  if (text == "zero3") return {.kind = Kind::zero3};
  if (text == "replicated") return {.kind = Kind::replicated};
  if (const std::int64_t k = number_after(text, "fsdp2:"); k > 0) return {.number = k};
  if (const std::int64_t k = number_after(text, "hybrid:"); k > 0) return {.kind = Kind::hybrid, .number = k};
  if (text.ends_with(":full"))
    if (const std::int64_t k = number_after(text.substr(0, text.size() - 5), "hybrid:"); k > 0)
      return {.kind = Kind::hybrid, .number = k, .full = true};
  unknown("sharding", text, sharding_names);
}

PrecisionChoice parse_precision(std::string_view text) {
  if (text == "fp32") return PrecisionChoice::fp32;
  if (text == "bf16") return PrecisionChoice::bf16;
  unknown("precision", text, precision_names);
}

TilingChoice parse_tiling(std::string_view text) {
  using Kind = TilingChoice::Kind;
  if (text == "off") return {};
  if (const std::int64_t n = number_after(text, "tiles:"); n > 0) return {.kind = Kind::tiles, .number = n};
  if (const std::int64_t n = number_after(text, "tokens:"); n > 0) return {.kind = Kind::tokens, .number = n};
  if (text == "budget:auto") return {.kind = Kind::budget};
  if (text.starts_with("budget:"))
    if (const std::int64_t n = bytes_of(text.substr(7)); n > 0) return {.kind = Kind::budget, .number = n};
  unknown("tiling", text, tiling_names);
}

CommChoice parse_comm(std::string_view text) {
  using Kind = CommChoice::Kind;
  if (text == "self") return {.kind = Kind::self};
  if (text == "mpi") return {.kind = Kind::mpi};
  if (text == "nccl") return {.kind = Kind::nccl};
  if (const std::int64_t n = number_after(text, "threads:"); n > 0) {
    require<InputError>(n <= 1024, "--comm ", text, ": at most 1024 ranks run as threads");
    return {.kind = Kind::threads, .ranks = n};
  }
  unknown("comm", text, comm_names);
}

std::int64_t parse_bytes(std::string_view flag, std::string_view text) {
  const std::int64_t bytes = bytes_of(text);
  require<InputError>(bytes > 0, "--", flag, " '", text,
                      "' is not a number of bytes; give one such as 8589934592 or 8GiB");
  return bytes;
}

std::string name_of(const ShardingChoice& choice) {
  using Kind = ShardingChoice::Kind;
  switch (choice.kind) {
    case Kind::zero1: return "zero1";
    case Kind::zero2: return "zero2";
    case Kind::zero3: return "zero3";
    case Kind::replicated: return "replicated";
    case Kind::hybrid: return with_number("hybrid", choice.number) + (choice.full ? ":full" : "");
    case Kind::fsdp2: break;
  }
  if (choice.number > 0) return with_number("fsdp2", choice.number);
  return choice.reshard ? "fsdp2" : "fsdp2:no-reshard";
}

std::string name_of(PrecisionChoice choice) { return choice == PrecisionChoice::fp32 ? "fp32" : "bf16"; }

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

std::string name_of(const StackChoice& choice) {
  return name_of(choice.sharding) + " " + name_of(choice.comm) + " " + name_of(choice.precision) + " " +
         name_of(choice.tiling);
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

std::int64_t threads_per_rank(std::int64_t asked, std::int64_t cores, std::int64_t ranks_here) {
  return asked > 0 ? asked : std::max<std::int64_t>(cores / std::max<std::int64_t>(ranks_here, 1), 1);
}

}  // namespace fsdp::train
