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

void add_segment(Sizes& sizes, std::size_t index, const ByteSegment& segment, std::int64_t element_bytes, int rank,
                 Write write) {
  const Op op = sizes.op;
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
    });
  return record;
}

}  // namespace detail
}  // namespace fsdp::comm
