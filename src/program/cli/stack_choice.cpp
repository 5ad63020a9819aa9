// SPDX-License-Identifier: Apache-2.0
#include "stack_choice.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/training/launch_options.hpp>
#include <tessera/trainer/flags/byte_count.hpp>

#include "../../fsdp/core/numbers.hpp"
#include "../../fsdp/core/split.hpp"
#include "../../fsdp/core/value_names.hpp"

namespace fsdp::cli {
namespace {

constexpr ValueNames<PrecisionChoice::bf16_wire> precision_names("fp32", "bf16", "bf16:wire=bf16");
constexpr ValueNames<OffloadChoice::optimizer> offload_names("none", "optimizer");

/// Returns the number after `prefix`, at least 1; 0 if the text is anything else. Throws InputError if the number is
/// above `most`.
std::int64_t number_after(std::string_view text, std::string_view prefix, std::int64_t most, std::string_view flag) {
  if (!text.starts_with(prefix)) return 0;
  const std::int64_t number = number_of_digits(text.substr(prefix.size())).value_or(0);
  require<InputError>(number <= most, "--", flag, " ", shortened(text), ": the number must be at most ", most);
  return number;
}

/// Joins names: "fp32, bf16"
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::string name_of_comm(const CommChoice& comm) { return std::string(split_at(comm.name(), ':').front()); }

std::string text_of(const BuiltWith& has) {
  return message("  --comm       ", listed(has.comms), "\n  --precision  ", listed(has.precisions), "\n  --offload    ",
                 to_text(OffloadChoice::none), ", ", to_text(OffloadChoice::optimizer), "\n  --sharding   ",
                 sharding_kinds(), "\n");
}

std::string lacking(const StackChoice& asked, const BuiltWith& has) {
  const std::string comm = name_of_comm(asked.comm), precision = to_text(asked.precision);
  if (std::ranges::find(has.comms, comm) == has.comms.end())
    return message("--comm ", comm, ": this program was built without ", comm, " and has ", listed(has.comms),
                   "; build the preset release, with -DTESSERA_COMMS=all",
                   comm == "mpi"    ? ", where CMake finds MPI (cmake/dependencies.sh installs it)"
                   : comm == "nccl" ? ", where CMake finds CUDA and NCCL"
                                    : "");
  if (std::ranges::find(has.precisions, precision) == has.precisions.end())
    return message("--precision ", precision, ": this program was built with ", listed(has.precisions),
                   "; take one of them, or build it with -DTESSERA_PRECISIONS=all");
  return "";
}

void require_built(const StackChoice& asked, const BuiltWith& has) {
  const std::string missing = lacking(asked, has);
  require<InputError>(missing.empty(), missing);
}

const tiling::RunTimeTiling& known_tiling(const tiling::RunTimeTiling& tiling) {
  require<InputError>(!tiling.asks_for_memory(),
                      "--tiling budget:auto is solved by `tessera train` alone; give bytes, ", "as in budget:512MiB");
  return tiling;
}

void from_text(std::string_view flag, std::string_view text, PrecisionChoice& value) {
  value = precision_names.value(flag, text);
}

void from_text(std::string_view flag, std::string_view text, OffloadChoice& value) {
  value = offload_names.value(flag, text);
}

void from_text(std::string_view flag, std::string_view text, CommChoice& value) {
  for (std::size_t i = 0; i < CommChoice::names.size(); ++i) {
    const CommChoice known{.kind = static_cast<CommChoice::Kind>(i)};
    const std::string_view prefix = known.name().substr(0, known.name().size() - 1);  // "threads:"
    const std::int64_t ranks = known.counts() ? number_after(text, prefix, train::most_started_ranks, flag) : 1;
    if (ranks > 0 && (known.counts() || text == known.name()))
      return void(value = {.kind = known.kind, .ranks = ranks});
  }
  refuse_unknown(flag, text, std::vector<std::string>(CommChoice::names.begin(), CommChoice::names.end()));
}

std::string to_text(PrecisionChoice value) { return precision_names.name(value); }
std::string to_text(OffloadChoice value) { return offload_names.name(value); }
std::string to_text(const CommChoice& value) {
  return value.counts() ? message(name_of_comm(value), ":", value.ranks) : std::string(value.name());
}

}  // namespace fsdp::cli

namespace fsdp::tiling {

void from_text(std::string_view flag, std::string_view text, RunTimeTiling& value) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();  // the policies store these numbers as int
  if (text == "off")
    value = {};
  else if (const std::int64_t tiles = cli::number_after(text, "tiles:", most, flag); tiles > 0)
    value = RunTimeTiling::tiles(tiles);
  else if (const std::int64_t tokens = cli::number_after(text, "tokens:", most, flag); tokens > 0)
    value = RunTimeTiling::tokens(tokens);
  else if (text == "budget:auto")
    value = RunTimeTiling::budget_of_memory();
  else if (const std::int64_t bytes = text.starts_with("budget:") ? train::bytes_of(text.substr(7)) : 0; bytes > 0)
    value = RunTimeTiling::budget(bytes);
  else
    refuse_unknown(flag, text, std::vector<std::string>{"off", "tiles:N", "tokens:N", "budget:BYTES", "budget:auto"});
}

std::string to_text(const RunTimeTiling& value) { return value.text(); }

}  // namespace fsdp::tiling
