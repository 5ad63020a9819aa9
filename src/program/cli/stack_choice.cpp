// SPDX-License-Identifier: Apache-2.0
#include "stack_choice.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>
#include <tessera/fsdp/training/launch_options.hpp>
#include <tessera/trainer/flags/flag_values.hpp>

#include "../../fsdp/core/strings.hpp"
#include "../../fsdp/core/value_names.hpp"

namespace fsdp::cli {
namespace {

constexpr ValueNames<LayoutChoice::Kind::blocks> layouts("default", "per-parameter", "flat", "rows", "owned", "blocks");
constexpr ValueNames<PrecisionChoice::bf16_wire> precision_names("fp32", "bf16", "bf16:wire=bf16");
constexpr ValueNames<OffloadChoice::optimizer> offload_names("none", "optimizer");
constexpr std::string_view in_pieces = ":pieces=V";

/// Calls `f` with a value of every kind of strategy, and its parts; of the inner strategies of hybrids with one.
template <class F>
void each_named_kind(const F& f) {
  each_kind<AnyStrategy>([&](AnyStrategy strategy) {
    PolicyParts parts;
    parts.part(strategy);
    const auto names_inner = [](const PolicyParts::Part& part) { return part.inner && !part.value && !part.implied; };
    if (std::ranges::none_of(parts.list(), names_inner)) f(strategy, parts);
  });
}

std::string first_word(std::string_view kind) { return std::string(split_at(kind, ':').front()); }
std::string text_of(const PolicyNumber& number) {
  return message(number.name, number.is_bytes ? "=BYTES" : !number.is_option ? "=N" : "");
}

/// Inserts a name after those with the same first word.
void add(std::vector<std::string>& names, const std::string& name) {
  const auto last = std::ranges::find(names.rbegin(), names.rend(), first_word(name), first_word);
  names.insert(last == names.rend() ? names.end() : last.base(), name);
}

/// The names of strategies without pieces, grouped by their first word, and the numbers that may follow them. Each
/// number has a list of strategies: the first kind of each group that accepts it.
struct Names {
  std::vector<std::string> kinds;
  std::vector<std::pair<PolicyNumber, std::vector<std::string>>> numbers;
};

Names known_names() {
  Names names;
  each_named_kind([&](const AnyStrategy&, const PolicyParts& parts) {
    const std::string kind = parts.text(true), word = first_word(kind);
    if (!kind.ends_with(in_pieces)) add(names.kinds, kind);
    const std::string owner = *std::ranges::find(names.kinds, word, first_word);
    for (const PolicyParts::Part& part : parts.list()) {
      if (part.number.name.empty()) continue;
      const auto is_it = [&](const auto& known) { return known.first.name == part.number.name; };
      auto known = std::ranges::find_if(names.numbers, is_it);
      if (known == names.numbers.end()) known = names.numbers.insert(known, {part.number, {}});
      if (std::ranges::count(known->second, owner) == 0) known->second.push_back(owner);
    }
  });
  return names;
}

/// Throws InputError, with a valid text, if a step cannot be divided into the pieces that a text specifies.
void require_pieces(std::string_view text) {
  constexpr std::string_view key = "pieces=";
  const std::vector<std::string_view> parts = split_at(text, ':');
  std::int64_t pieces = 0;
  for (const std::string_view part : parts) {
    if (!part.starts_with(key)) continue;
    require<InputError>(pieces == 0, "--sharding ", shortened(text), ": says twice how many pieces a step has; ",
                        "write pieces=N once");
    pieces = number_of_digits(part.substr(key.size())).value_or(0);
    require<InputError>(pieces > 0, "--sharding ", shortened(text), ": a step has at least 1 piece; write ", key,
                        "N with a whole number from 1 on, such as ", key, "8");
  }
  const bool groups = parts.front() == "hybrid";
  require<InputError>(pieces == 0 || !(groups || parts.front() == "replicated"), "--sharding ", shortened(text), ": ",
                      groups ? "each group of ranks" : "each rank",
                      " adds up its gradients first, so that results would depend on the number of ranks; take ",
                      "fsdp2:pieces=", pieces, ", zero2:pieces=", pieces, " or zero3:pieces=", pieces);
}

/// Throws InputError if an invalid text contains a budget: which strategies accept one, or the budget's error.
void require_budget(std::string_view text) {
  constexpr std::string_view key = "budget=";
  const std::vector<std::string_view> parts = split_at(text, ':');
  std::string without;
  std::string_view budget;
  for (const std::string_view part : parts) {
    require<InputError>(budget.empty() || !part.starts_with(key), "--sharding ", shortened(text),
                        ": says twice how many bytes gathered weights take; write budget=BYTES once");
    if (part.starts_with(key))
      budget = part;
    else
      without += (without.empty() ? "" : ":") + std::string(part);
  }
  if (budget.empty() || !read_strategy<AnyStrategy>(without, "--sharding ")) return;
  const bool takes = read_strategy<AnyStrategy>(without + ":budget=1", "--sharding ").has_value();
  require<InputError>(takes, "--sharding ", shortened(text),
                      ": a budget chooses how long gathered weights are held, and ", shortened(without),
                      " says that itself; write fsdp2:", shortened(budget), " or zero3:", shortened(budget),
                      ", or leave it out");
  throw InputError(
      message("--sharding ", shortened(text), ": '", shortened(budget.substr(key.size())),
              "' is not a number of bytes; write one such as budget=536870912 or budget=512MiB, or budget=auto"));
}

/// Returns the number from 1 on after `prefix`; 0 for any other text. Throws InputError if it is above `most`.
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

/// Lists the precisions of a program; those of float weights are no values of --precision.
std::string precisions_text(const CompiledParts& has) {
  std::vector<std::string> texts = has.precisions;
  for (std::string& text : texts)
    if (text.ends_with("+fp32")) text.replace(text.size() - 5, 5, " with --precision-of");
  return listed(texts);
}

}  // namespace

ShardingChoice parse_sharding(std::string_view text) {
  require_pieces(text);
  if (const auto found = read_strategy<AnyStrategy>(text, "--sharding ")) return {.strategy = *found};
  const std::vector<std::string_view> parts = split_at(text, ':');
  require_budget(text);
  const auto is_number = [](std::string_view part) { return number_of_digits(part).has_value(); };
  require<InputError>(parts.front() != "hybrid" || std::ranges::any_of(parts, is_number), "--sharding ",
                      shortened(text), " does not say how many ranks hold a model together; write hybrid:K");
  auto [names, numbers] = known_names();
  for (const auto& [number, behind] : numbers) add(names, message(behind.front(), ":", text_of(number)));
  add(names, "hybrid:K:zero3");
  refuse_unknown("sharding", text, names);
}

ShardingChoice parse_whole_sharding(std::string_view text) {
  std::string rest(text);
  std::vector<std::string> units;
  for (std::size_t middle; (middle = rest.find("=(")) != std::string::npos;) {
    const std::size_t begin = rest.rfind(':', middle), end = rest.find(')', middle);
    if (begin == std::string::npos || end == std::string::npos) break;  // parse_sharding reports it
    units.push_back(rest.substr(begin + 1, middle - begin) + "\n" + rest.substr(middle + 2, end - middle - 2));
    rest.erase(begin, end - begin + 1);
  }
  constexpr std::string_view key = "layout=";
  std::string strategy;
  std::optional<std::string> layout;
  for (bool follows = false; const std::string_view part : split_at(rest, ':')) {
    const bool is_layout = part.starts_with(key) && part.data() != rest.data();
    require<InputError>(!is_layout || !layout, shortened(text),
                        " says twice which layout tensors have; write layout=LAYOUT once");
    if (is_layout)
      layout = part.substr(key.size());
    else if (follows && number_of_digits(part))  // blocks:N
      *layout += message(":", part);
    else  // what is empty or there twice is an unknown strategy
      strategy += (part.data() == rest.data() ? "" : ":") + std::string(part);
    follows = is_layout;
  }
  ShardingChoice choice = parse_sharding(strategy);
  if (layout) from_text("layout", *layout, choice.layout);
  for (std::string& unit : units) {
    // The parts of hybrid:K:full are in its inner strategy.
    const std::string outer = choice.strategy.index() == 0 ? "" : message("hybrid:", fewest_ranks(choice), ":full:");
    from_text("sharding-of", unit.replace(unit.find('\n'), 1, outer), choice.units.emplace_back());
  }
  return choice;
}

bool operator==(const ShardingChoice& a, const ShardingChoice& b) {
  const auto text = [](const On<ShardingChoice>& unit) { return to_text(unit); };
  return to_text(a) == to_text(b) && a.layout == b.layout && std::ranges::equal(a.units, b.units, {}, text, text);
}

template <class Sharding>
bool takes(const ShardingChoice& choice) {
  const auto groups = [](const ShardingChoice& one) { return one.strategy.index() == 0 ? 0 : fewest_ranks(one); };
  for (const auto& unit : choice.units)
    require<InputError>(groups(unit.value) == groups({.strategy = choice.strategy}), "--sharding-of ", to_text(unit),
                        " and --sharding ", to_text(choice),
                        " place optimizer state differently over groups of ranks, ",
                        "and a run has one placement; give all of them hybrid:K:full with one K, or none");
  return std::visit([]<class S>(const S&) { return std::is_base_of_v<S, Sharding>; }, choice.strategy);
}
template <class Sharding>
Sharding sharding_of(const ShardingChoice& choice) {
  require(takes<Sharding>(choice), "--sharding ", to_text(choice), " is no strategy of this stack");
  Sharding sharding;
  const auto assign = [&]<class S>(const S& strategy) {
    if constexpr (std::is_base_of_v<S, Sharding>) static_cast<S&>(sharding) = strategy;
  };
  std::visit(assign, choice.strategy);
  if constexpr (requires { sharding.other_layout; }) {
    sharding.other_layout = layout_of(choice);
    for (const auto& [pattern, unit] : choice.units)
      sharding.units.push_back(part_of(on(pattern, sharding_of<RunTimeAny>(unit))));
  } else {
    sharding.inner.other_layout = layout_of(choice);
    for (const auto& [pattern, unit] : choice.units)
      sharding.inner.units.push_back(part_of(on(pattern, sharding_of<RunTimeHybridFull>(unit).inner)));
  }
  return sharding;
}
/// Expands to the instantiations for a stack's strategy type.
#define FSDP_STRATEGY(type)                         \
  template bool takes<type>(const ShardingChoice&); \
  template type sharding_of<type>(const ShardingChoice&);
FSDP_STRATEGIES
#undef FSDP_STRATEGY

std::optional<buffer::AnyLayout> layout_of(const ShardingChoice& choice) {
  const buffer::AnyLayout kinds[] = {buffer::PerParameter{}, buffer::Flat{}, buffer::Rows{}, buffer::Owned{},
                                     buffer::Blocks{choice.layout.elements}};
  const std::string own =
      std::visit([](const auto& strategy) { return policy_text(fsdp::layout_of(strategy)); }, choice.strategy);
  if (choice.layout.kind == LayoutChoice::own || to_text(choice.layout) == own) return std::nullopt;
  return kinds[static_cast<std::size_t>(choice.layout.kind) - 1];
}

int pieces_of(const ShardingChoice& choice) {
  return std::visit([](const auto& strategy) { return sharding::facts_of(strategy).pieces; }, choice.strategy);
}

int fewest_ranks(const ShardingChoice& choice) {
  int ranks = std::visit([](const auto& strategy) { return std::max(strategy.ranks_per_group(), 1); }, choice.strategy);
  for (const auto& [pattern, unit] : choice.units) ranks = std::max(ranks, fewest_ranks(unit));
  return ranks;
}

std::string sharding_help() {
  const auto [kinds, numbers] = known_names();
  std::string text;
  for (const std::string& kind : kinds) text += (text.empty() ? "" : " | ") + kind;
  text += "; K ranks per group. Behind hybrid:K also the strategy inside a group (:zero3; else fsdp2)";
  for (const auto& [number, behind] : numbers) {
    text += message(". :", text_of(number), " (", number.help, ") behind ", behind.front());
    for (const std::string& name : std::span(behind).subspan(1))
      text += (&name == &behind.back() ? " and " : ", ") + name;
  }
  return text;
}

void from_text(std::string_view, std::string_view text, ShardingChoice& value) {
  value.strategy = parse_sharding(text).strategy;  // the layout comes from --layout
}

void from_text(std::string_view flag, std::string_view text, LayoutChoice& value) {
  const std::int64_t elements = number_after(text, "blocks:", std::int64_t{1} << 56, flag);
  value = elements > 0 ? LayoutChoice(LayoutChoice::blocks, elements) : layouts.value(flag, text);
}

/// Reads "PATTERN=STRATEGY". A pattern has no colon, so that its '=' is the last one before the first colon.
void from_text(std::string_view flag, std::string_view text, On<ShardingChoice>& value) {
  const std::string what = message("--", flag, " ", shortened(text));
  const std::size_t split = text.rfind('=', text.find(':'));
  require<InputError>(
      split != text.npos && split > 0 && split + 1 < text.size() && text.find('\n') == text.npos, what,
      " is not a pattern and a ",
      "strategy; write PATTERN=STRATEGY, such as 'embed_tokens|lm_head=replicated', with ? for a colon ", "of a name");
  value.pattern = TensorPattern::from(text.substr(0, split), what + ": ");
  for (const std::string_view word : split_at(text.substr(split + 1), ':'))
    for (const std::string_view number : {"prefetch=", "live=", "budget=", "pieces="})
      require<InputError>(!word.starts_with(number), what, " sets ", shortened(word),
                          ", which is one for the whole module; set it in --sharding, or leave it out");
  value.value = prefixed(what + ": ", [&] { return parse_whole_sharding(text.substr(split + 1)); });
  require<InputError>(value.value.units.empty(), what, " has strategies of units inside; give each its own --", flag);
}

std::string to_text(const ShardingChoice& value) { return listed_text(value.strategy); }
std::string to_text(const On<ShardingChoice>& value) {
  const auto layout = value.value.layout;
  return message(value.pattern.text(), "=", to_text(value.value),
                 layout.kind == LayoutChoice::own ? "" : ":layout=" + to_text(layout));
}
std::string to_text(LayoutChoice value) {
  return value.elements == 0 ? layouts.name(value.kind) : message(layouts.name(value.kind), ":", value.elements);
}

std::string sharding_kinds() {
  std::string text;
  each_named_kind([&](const AnyStrategy&, const PolicyParts& parts) {
    const std::string kind = parts.text(true);
    if (kind.ends_with(in_pieces)) return;
    const bool hybrid = std::ranges::any_of(parts.list(), &PolicyParts::Part::inner);
    const bool pieces = read_strategy<AnyStrategy>(parts.text() + ":pieces=1").has_value();
    text += message(text.empty() ? "" : " | ", kind, hybrid ? "[:INNER]" : pieces ? "[:pieces=V]" : "");
  });
  return text;
}

std::string precision_text(const StackChoice& choice) {
  return to_text(choice.precision) + (choice.has_float_weights ? "+fp32" : "");
}

std::string name_of_comm(const CommChoice& comm) { return std::string(split_at(comm.name(), ':').front()); }

std::string text_of(const CompiledParts& has) {
  return message("  --comm       ", listed(has.comms), "\n  --precision  ", precisions_text(has), "\n  --offload    ",
                 to_text(OffloadChoice::none), ", ", to_text(OffloadChoice::optimizer), "\n  --sharding   ",
                 sharding_kinds(), "\n");
}

std::string missing_parts_text(const StackChoice& asked, const CompiledParts& has) {
  const std::string comm = name_of_comm(asked.comm), precision = precision_text(asked);
  require<InputError>(!asked.has_float_weights || asked.precision == PrecisionChoice::bf16,
                      "--precision-of makes some weights float next to bf16 ones, and --precision is ",
                      to_text(asked.precision), "; take --precision bf16, or leave --precision-of out");
  if (std::ranges::find(has.comms, comm) == has.comms.end())
    return message("--comm ", comm, ": this program was built without ", comm, " and has ", listed(has.comms),
                   "; build the preset release, with -DTESSERA_COMMS=all",
                   comm == "mpi"    ? ", where CMake finds MPI (cmake/dependencies.sh installs it)"
                   : comm == "nccl" ? ", where CMake finds CUDA and NCCL"
                                    : "");
  const bool has_precision = std::ranges::find(has.precisions, precision) != has.precisions.end();
  if (!has_precision && asked.has_float_weights)
    return "--precision-of: this program was built without float weights next to bf16 ones; leave it out, or build it "
           "with -DTESSERA_PRECISIONS='fp32;bf16;bf16_wire;bf16_fp32'";
  if (!has_precision)
    return message("--precision ", precision, ": this program was built with ", precisions_text(has),
                   "; take one of them, or build it with -DTESSERA_PRECISIONS=all");
  return "";
}

void require_built(const StackChoice& asked, const CompiledParts& has) {
  const std::string missing = missing_parts_text(asked, has);
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
