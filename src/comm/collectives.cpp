// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/collectives.hpp>

#include <algorithm>
#include <array>
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
/// than its peer sends. `mine`: Entered::exchanged.
void check_exchanged_counts(const Monitor& monitor, int ranks, std::span<const std::int64_t> mine, Gather gather) {
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(ranks));
  gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
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

void add_exchange(Sizes& sizes, std::size_t index, const ByteSegment& exchange, int rank) {
  const std::int64_t sent = checked_sum(exchange.sent, sizes.ranks, "send_counts", index);
  const std::int64_t received = checked_sum(exchange.counts, sizes.ranks, "receive_counts", index);
  require((exchange.local != nullptr || sent == 0) && (exchange.full != nullptr || received == 0),
          "all_to_all: exchange ", index, " has no memory for the ", sent, " elements that it sends or the ", received,
          " that it receives");
  const std::int64_t own = exchange.sent_count(rank, rank);
  require(own == exchange.count(rank), "all_to_all: in exchange ", index, " rank ", rank, " sends itself ", own,
          " elements and receives ", exchange.count(rank), " from itself; give the same count twice");
  sizes.elements = checked_add(sizes.elements, received);
}

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

}  // namespace

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

void add_segment(Sizes& sizes, std::size_t index, const ByteSegment& segment, std::int64_t element_bytes, int rank,
                 Write write) {
  const Op op = sizes.op;
  if (op == Op::all_to_all) return add_exchange(sizes, index, segment, rank);
  require(segment.counts.size() == static_cast<std::size_t>(sizes.ranks), name_of(op), ": segment ", index, " has ",
          segment.counts.size(), " counts for ", sizes.ranks,
          " ranks; give one count per rank, 0 where a rank has nothing");
  std::int64_t total = 0;
  std::int64_t begin = 0;
  for (int peer = 0; peer < sizes.ranks; ++peer) {
    const std::int64_t count = segment.count(peer);
    require(count >= 0, name_of(op), ": segment ", index, " has ", count, " elements for rank ", peer);
    if (peer == rank) begin = total;
    total = checked_add(total, count);
    sizes.hash = hashed(sizes.hash, count);
  }
  const std::int64_t own = segment.count(rank);
  require((segment.full != nullptr || total == 0) && (segment.local != nullptr || own == 0), name_of(op), ": segment ",
          index, " has no memory for its ", total, " elements");
  const bool in_place = own == 0 || segment.local == segment.full + begin * element_bytes;
  require(in_place || op != Op::all_reduce, "all_reduce: `local` of segment ", index,
          " must lie in its place inside `full`; the sum is gathered there");
  require(!in_place || own == 0 || op != Op::reduce_scatter || write == Write::overwrite, "reduce_scatter: segment ",
          index,
          " would add the sum to one of its own contributions; accumulate into "
          "memory outside `full`");
  sizes.elements = checked_add(sizes.elements, total);
  sizes.own_elements += own;
  if (!in_place) sizes.own_copied += own;
}

Record enter(Monitor& monitor, int rank, int size, const Entered& entered, Gather gather) {
  const Record record{.sequence = monitor.sequence++,
                      .op = entered.op,
                      .dtype = entered.dtype,
                      .bytes = checked_multiply(entered.elements, size_of(entered.dtype)),
                      .label = entered.label};
  monitor.totals.traffic[record.op] += {.calls = 1, .bytes = record.bytes};
  if (monitor.options.record) monitor.records.push_back(record);
  if (monitor.options.before) monitor.options.before(rank, record);
  if (monitor.options.checks && size > 1)
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
      check_agreement(monitor, size, print, gather);
      if (record.op == Op::all_to_all) check_exchanged_counts(monitor, size, entered.exchanged, gather);
    });
  return record;
}

}  // namespace detail
}  // namespace fsdp::comm
