// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/collectives.hpp>

#include <algorithm>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::comm {
namespace {

using Gather = FunctionRef<void(std::span<const std::byte>, std::span<std::byte>)>;

/// A description of a collective in a fixed number of bytes, so that one small gather compares all ranks.
struct Fingerprint {
  std::int64_t sequence = 0;
  std::int64_t bytes = 0;
  std::uint64_t sizes = 0;  ///< hash of all counts of all segments
  std::int64_t segments = 0;
  std::int32_t unit = -1;
  Op op = Op::barrier;
  DType dtype = DType::u8;
  std::uint8_t variant = 0;  ///< Reduction, Write and SumOrder, or root
  std::array<char, 48> what{};

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

std::string words(const Fingerprint& print) {
  return describe({.sequence = print.sequence,
                   .op = print.op,
                   .dtype = print.dtype,
                   .bytes = print.bytes,
                   .label = {.what = std::string_view(print.what.data()), .unit = print.unit}});
}

/// Throws CollectiveError, the same on every rank, unless all ranks' fingerprints are equal. The bytes of an all_to_all
/// are not compared, since each rank counts only its own.
void check_agreement(const Monitor& monitor, int ranks, const Fingerprint& mine, Gather gather) {
  std::vector<Fingerprint> all(static_cast<std::size_t>(ranks));
  gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  const Fingerprint& first = all[0];
  const auto comparable = [&](Fingerprint print) {
    if (print.op == Op::all_to_all && first.op == Op::all_to_all) print.bytes = first.bytes;
    return print;
  };
  const auto other = std::ranges::find_if(all, [&](const Fingerprint& print) { return comparable(print) != first; });
  if (other == all.end()) return;
  const Fingerprint theirs = comparable(*other);
  const std::string_view hidden = words(first) != words(theirs)       ? ""
                                  : first.segments != theirs.segments ? "; the numbers of segments differ"
                                  : first.sizes != theirs.sizes       ? "; the counts of elements by rank differ"
                                  : first.variant != theirs.variant
                                      ? "; what is done with the values (Write, SumOrder, Reduction or root) differs"
                                      : "";
  throw CollectiveError(message("ranks disagree: ", monitor.name_of(0), " is in ", words(first), ", ",
                                monitor.name_of(static_cast<int>(other - all.begin())), " is in ", words(*other),
                                hidden, "; every rank must make the same collectives in the same order"));
}

/// Throws CollectiveError, the same on every rank, if a rank of an all_to_all receives a different number of elements
/// than its peer sends.
void check_exchanged_counts(const Monitor& monitor, int ranks, const PartList& parts, Gather gather) {
  // For each exchange, the number of elements that this rank sends to each rank, then the number that it receives.
  std::vector<std::int64_t> mine;
  for (std::size_t index = 0; index < parts.count; ++index) {
    const ByteSegment exchange = parts[index];
    mine.insert(mine.end(), exchange.sent.begin(), exchange.sent.end());
    mine.insert(mine.end(), exchange.counts.begin(), exchange.counts.end());
  }
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(ranks));
  gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  const std::int64_t exchanges = std::ssize(mine) / (2 * ranks);
  const auto count_of = [&](int rank, std::int64_t exchange, bool received, int peer) {
    return all[static_cast<std::size_t>(rank * std::ssize(mine) + (2 * exchange + (received ? 1 : 0)) * ranks + peer)];
  };
  for (std::int64_t exchange = 0; exchange < exchanges; ++exchange)
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to)
        require_same_counts(monitor, {.exchange = static_cast<std::size_t>(exchange),
                                      .from = from,
                                      .to = to,
                                      .sent = count_of(from, exchange, false, to),
                                      .received = count_of(to, exchange, true, from)});
}

}  // namespace

namespace detail {

Watched::Watched(Monitor& monitor, const Record& record)
    : monitor_(monitor), copied_before_(monitor.totals.copy_seconds), begin_(Clock::now()) {
  monitor_.current = record;
}

Watched::~Watched() {
  const double copied = monitor_.totals.copy_seconds - copied_before_;
  monitor_.totals.waiting_seconds += std::max(0.0, Seconds(Clock::now() - begin_).count() - copied);
}

CollectiveError Watched::explain(const CollectiveError& error) const {
  return CollectiveError(message("rank ", monitor_.world_rank_of(monitor_.rank), ", ", describe(monitor_.current),
                                 ", after ", in_seconds(Clock::now() - begin_), ": ", error.what()));
}

namespace {

/// Checks the counts of an exchange's pieces and returns their sum.
std::int64_t checked_sum(std::span<const std::int64_t> counts, int ranks, std::string_view name, std::size_t index) {
  require(counts.size() == static_cast<std::size_t>(ranks), "all_to_all: exchange ", index, " has ", counts.size(), " ",
          name, " for ", ranks, " ranks; give one count per rank, 0 where a rank has nothing");
  std::int64_t sum = 0;
  for (std::size_t peer = 0; peer < counts.size(); ++peer) {
    require(counts[peer] >= 0, "all_to_all: exchange ", index, " has ", counts[peer], " in ", name, " of rank ", peer);
    sum = checked_add(sum, counts[peer]);
  }
  return sum;
}

void add_exchange(Entered& entered, const Position& position, std::size_t index, const ByteSegment& exchange) {
  const std::int64_t sent = checked_sum(exchange.sent, position.size, "send_counts", index);
  const std::int64_t received = checked_sum(exchange.counts, position.size, "receive_counts", index);
  require((exchange.local != nullptr || sent == 0) && (exchange.full != nullptr || received == 0),
          "all_to_all: exchange ", index, " has no memory for the ", sent, " elements that it sends or the ", received,
          " that it receives");
  const std::int64_t own = exchange.sent_count(position.rank, position.rank);
  require(own == exchange.count(position.rank), "all_to_all: in exchange ", index, " rank ", position.rank,
          " sends itself ", own, " elements and receives ", exchange.count(position.rank),
          " from itself; give the same count twice");
  entered.elements = checked_add(entered.elements, received);
}

void add_segment(Entered& entered, const Position& position, std::size_t index, const ByteSegment& segment,
                 std::int64_t element_bytes) {
  const Op op = entered.op;
  require(segment.counts.size() == static_cast<std::size_t>(position.size), name_of(op), ": segment ", index, " has ",
          segment.counts.size(), " counts for ", position.size,
          " ranks; give one count per rank, 0 where a rank has nothing");
  std::int64_t total = 0;
  std::int64_t begin = 0;
  for (int peer = 0; peer < position.size; ++peer) {
    const std::int64_t count = segment.count(peer);
    require(count >= 0, name_of(op), ": segment ", index, " has ", count, " elements for rank ", peer);
    if (peer == position.rank) begin = total;
    total = checked_add(total, count);
    entered.hash = hashed(entered.hash, count);
  }
  const std::int64_t own = segment.count(position.rank);
  require((segment.full != nullptr || total == 0) && (segment.local != nullptr || own == 0), name_of(op), ": segment ",
          index, " has no memory for its ", total, " elements");
  const bool in_place = own == 0 || segment.local == segment.full + begin * element_bytes;
  require(in_place || op != Op::all_reduce, "all_reduce: `local` of segment ", index,
          " must lie in its place inside `full`; the sum is gathered there");
  require(!in_place || own == 0 || op != Op::reduce_scatter || entered.write == Write::overwrite,
          "reduce_scatter: segment ", index,
          " would add the sum to one of its own contributions; accumulate into "
          "memory outside `full`");
  entered.elements = checked_add(entered.elements, total);
  entered.own_elements += own;
  if (!in_place) entered.own_copied += own;
}

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

/// Throws if the memory that exchange `i` of an all_to_all receives into overlaps the memory that exchange `j` of the
/// same call sends, or that another exchange receives into.
void require_apart(std::size_t i, const ByteSegment& receiving, std::size_t j, const ByteSegment& other,
                   std::int64_t element_bytes) {
  const auto bytes = [&](const std::byte* data, std::int64_t elements) {
    return std::span(data, static_cast<std::size_t>(elements * element_bytes));
  };
  const auto received = bytes(receiving.full, receiving.total());
  require(!overlap(received, bytes(other.local, other.sent_begin(static_cast<int>(other.sent.size())))),
          "all_to_all: `receive` of exchange ", i, " and `send` of exchange ", j,
          " overlap, so that pieces would be overwritten before peers read them; receive into other memory");
  require(i == j || !overlap(received, bytes(other.full, other.total())), "all_to_all: `receive` of exchange ", i,
          " and that of exchange ", j, " overlap; receive into other memory");
}

/// Checks all segments or exchanges, and adds their sizes to `entered`.
void add_parts(Entered& entered, const Position& position, const PartList& parts) {
  entered.segments += static_cast<std::int64_t>(parts.count);
  const bool exchanges = entered.op == Op::all_to_all;
  for (std::size_t i = 0; i < parts.count; ++i)
    if (exchanges)
      add_exchange(entered, position, i, parts[i]);
    else
      add_segment(entered, position, i, parts[i], size_of(parts.dtype));
  for (std::size_t i = 0; exchanges && i < parts.count; ++i)
    for (std::size_t j = 0; j < parts.count; ++j) require_apart(i, parts[i], j, parts[j], size_of(parts.dtype));
}

/// Returns the bytes that a collective copies on this rank.
std::int64_t copied_bytes(const Entered& entered, int ranks) {
  const std::int64_t others = entered.elements - entered.own_elements, summed = entered.own_elements * (ranks - 1);
  switch (entered.op) {
    case Op::reduce:
    case Op::reduce_scatter: return summed * size_of(entered.dtype);
    case Op::all_reduce: return summed * size_of(entered.dtype) + others * size_of(DType::f32);
    default: return (others + entered.own_copied) * size_of(entered.dtype);
  }
}

}  // namespace

Record enter(const Position& position, Entered entered, const PartList& parts, Gather gather) {
  add_parts(entered, position, parts);
  Monitor& monitor = position.monitor;
  const Record record{.sequence = monitor.sequence++,
                      .op = entered.op,
                      .dtype = entered.dtype,
                      .bytes = checked_multiply(entered.elements, size_of(entered.dtype)),
                      .label = entered.label};
  monitor.totals.traffic[record.op] += {.calls = 1, .bytes = record.bytes};
  if (monitor.options.record) monitor.records.push_back(record);
  if (monitor.options.before) monitor.options.before(position.rank, record);
  if (monitor.options.checks && position.size > 1)
    watch(monitor, record, [&] {
      Fingerprint print{.sequence = record.sequence,
                        .bytes = record.bytes,
                        .sizes = entered.hash,
                        .segments = entered.segments,
                        .unit = record.label.unit,
                        .op = record.op,
                        .dtype = record.dtype,
                        .variant = entered.variant};
      record.label.what.copy(print.what.data(), print.what.size() - 1);
      check_agreement(monitor, position.size, print, gather);
      if (record.op == Op::all_to_all) check_exchanged_counts(monitor, position.size, parts, gather);
    });
  monitor.totals.copied_bytes += copied_bytes(entered, position.size);
  return record;
}

Position position_in_part(const Position& whole, int color, FunctionRef<int(int)> color_of) {
  Position part{.monitor = whole.monitor, .rank = 0, .size = 0};
  for (int peer = 0; peer < whole.size; ++peer) {
    if (color_of(peer) != color) continue;
    if (peer < whole.rank) ++part.rank;
    ++part.size;
  }
  return part;
}

void require_part(const Position& whole, const Position& expected, const Position& made) {
  require<InputError>(made.rank == expected.rank && made.size == expected.size, "split: a communicator made rank ",
                      whole.rank, " of ", whole.size, " rank ", made.rank, " of ", made.size, ", and it is rank ",
                      expected.rank, " of ", expected.size,
                      "; ranks of equal color form the new communicator, in their order");
}

}  // namespace detail
}  // namespace fsdp::comm
