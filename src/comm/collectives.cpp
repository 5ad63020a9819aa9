// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/collectives.hpp>

#include <algorithm>

#include <tessera/comm/backend.hpp>
#include <tessera/comm/checks.hpp>
#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::comm {
namespace {

template <class T>
void combine(std::span<const T> gathered, Reduction reduction, std::span<T> values) {
  std::copy_n(gathered.begin(), values.size(), values.begin());
  for (std::size_t at = values.size(); at < gathered.size(); ++at) {
    T& value = values[at % values.size()];
    switch (reduction) {
      case Reduction::sum: value += gathered[at]; break;
      case Reduction::max: value = std::max(value, gathered[at]); break;
      case Reduction::min: value = std::min(value, gathered[at]); break;
    }
  }
}

}  // namespace

void combine_in_rank_order(std::span<const double> gathered, Reduction reduction, std::span<double> values) {
  combine(gathered, reduction, values);
}
void combine_in_rank_order(std::span<const std::int64_t> gathered, Reduction reduction,
                           std::span<std::int64_t> values) {
  combine(gathered, reduction, values);
}

namespace detail {
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

Record enter(Monitor& monitor, int rank, int size, const Entered& entered,
             FunctionRef<void(std::span<const std::byte>, std::span<std::byte>)> gather) {
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
      check_agreement(monitor, size, fingerprint_of(record, entered.segments, entered.hash, entered.variant), gather);
      if (record.op == Op::all_to_all) check_exchanged_counts(monitor, size, entered.exchanged, gather);
    });
  return record;
}

}  // namespace detail
}  // namespace fsdp::comm
