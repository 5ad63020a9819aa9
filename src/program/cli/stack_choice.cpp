// SPDX-License-Identifier: Apache-2.0
#include "stack_choice.hpp"

#include <limits>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_parts.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/training/launch_options.hpp>
#include <tessera/trainer/flags/byte_count.hpp>

#include "../../fsdp/core/numbers.hpp"
#include "names.hpp"

namespace fsdp::cli {
namespace {

const std::vector<std::string> precision_names = {"fp32", "bf16", "bf16:wire=bf16"};
const std::vector<std::string> offload_names = {"none", "optimizer"};
const std::vector<std::string> tiling_names = {"off", "tiles:N", "tokens:N", "budget:BYTES", "budget:auto"};
const std::vector<std::string> comm_names = {"self", "threads:N", "mpi", "nccl"};

constexpr std::int64_t most_int = std::numeric_limits<std::int32_t>::max();  // the policies' numbers are int

/// Returns the number after `prefix`, at least 1; 0 if the text is anything else. Throws InputError if the number is
/// above `most`.
std::int64_t number_after(std::string_view text, std::string_view prefix, std::int64_t most, std::string_view flag) {
  if (!text.starts_with(prefix)) return 0;
  const std::int64_t number = number_of_digits(text.substr(prefix.size())).value_or(0);
  require<InputError>(number <= most, "--", flag, " ", shortened(text), ": the number must be at most ", most);
  return number;
}

}  // namespace

PrecisionChoice parse_precision(std::string_view text) {
  return static_cast<PrecisionChoice>(index_of_name("precision", text, precision_names));
}

OffloadChoice parse_offload(std::string_view text) {
  return static_cast<OffloadChoice>(index_of_name("offload", text, offload_names));
}

TilingChoice parse_tiling(std::string_view text) {
  using Kind = TilingChoice::Kind;
  if (text == "off") return {};
  if (const std::int64_t n = number_after(text, "tiles:", most_int, "tiling"); n > 0)
    return {.kind = Kind::tiles, .number = n};
  if (const std::int64_t n = number_after(text, "tokens:", most_int, "tiling"); n > 0)
    return {.kind = Kind::tokens, .number = n};
  if (text == "budget:auto") return {.kind = Kind::budget};
  if (text.starts_with("budget:"))
    if (const std::int64_t n = train::bytes_of(text.substr(7)); n > 0) return {.kind = Kind::budget, .number = n};
  refuse_unknown("tiling", text, tiling_names);
}

CommChoice parse_comm(std::string_view text) {
  using Kind = CommChoice::Kind;
  if (text == "self") return {.kind = Kind::self};
  if (text == "mpi") return {.kind = Kind::mpi};
  if (text == "nccl") return {.kind = Kind::nccl};
  if (const std::int64_t n = number_after(text, "threads:", train::most_started_ranks, "comm"); n > 0)
    return {.kind = Kind::threads, .ranks = n};
  refuse_unknown("comm", text, comm_names);
}

tiling::RunTimeTiling policy_of(const TilingChoice& choice) {
  switch (choice.kind) {
    case TilingChoice::Kind::tiles: return tiling::RunTimeTiling::tiles(choice.number);
    case TilingChoice::Kind::tokens: return tiling::RunTimeTiling::tokens(choice.number);
    case TilingChoice::Kind::off: return tiling::Untiled{};
    case TilingChoice::Kind::budget: break;
  }
  require<InputError>(choice.number > 0, "--tiling budget:auto is solved by `tessera train` alone; give bytes, ",
                      "as in budget:512MiB");
  return tiling::RunTimeTiling::budget(choice.number);
}

tiling::RunTimeTiling training_policy_of(const TilingChoice& choice) {
  const bool open = choice == TilingChoice{.kind = TilingChoice::Kind::budget};
  return open ? tiling::RunTimeTiling::budget_of_memory() : policy_of(choice);
}

void from_text(std::string_view, std::string_view text, PrecisionChoice& value) { value = parse_precision(text); }
void from_text(std::string_view, std::string_view text, OffloadChoice& value) { value = parse_offload(text); }
void from_text(std::string_view, std::string_view text, TilingChoice& value) { value = parse_tiling(text); }
void from_text(std::string_view, std::string_view text, CommChoice& value) { value = parse_comm(text); }

std::string to_text(PrecisionChoice value) { return precision_names[static_cast<std::size_t>(value)]; }
std::string to_text(OffloadChoice value) { return offload_names[static_cast<std::size_t>(value)]; }
std::string to_text(const TilingChoice& value) { return policy_text(training_policy_of(value)); }
std::string to_text(const CommChoice& value) {
  const bool counts = value.kind == CommChoice::Kind::threads;
  return counts ? message("threads:", value.ranks) : comm_names[static_cast<std::size_t>(value.kind)];
}

}  // namespace fsdp::cli
