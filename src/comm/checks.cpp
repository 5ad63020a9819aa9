// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/checks.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/transfer.hpp>

namespace fsdp::comm {
namespace {

std::string words(const Fingerprint& print) {
  const Record record{.sequence = print.sequence,
                      .op = print.op,
                      .dtype = print.dtype,
                      .bytes = print.bytes,
                      .label = {.what = std::string_view(print.what.data()), .unit = print.unit}};
  return describe(record);
}

/// Returns the difference between two ranks' collectives whose descriptions are the same text; empty if the texts
/// differ.
std::string_view hidden_difference(const Fingerprint& a, const Fingerprint& b) {
  if (words(a) != words(b)) return "";
  if (a.segments != b.segments) return "; the numbers of segments differ";
  if (a.sizes != b.sizes) return "; the counts of elements by rank differ";
  if (a.variant != b.variant) return "; what is done with the values (Write, SumOrder, Reduction or root) differs";
  return "";
}

/// Returns `print` with its bytes replaced by those of `other` if both are an all_to_all, whose bytes need not be
/// equal.
Fingerprint comparable(Fingerprint print, const Fingerprint& other) {
  if (print.op == Op::all_to_all && other.op == Op::all_to_all) print.bytes = other.bytes;
  return print;
}

}  // namespace

Fingerprint fingerprint_of(const Record& record, std::int64_t segments, std::uint64_t sizes, std::uint8_t variant) {
  Fingerprint print{.sequence = record.sequence,
                    .bytes = record.bytes,
                    .sizes = sizes,
                    .segments = segments,
                    .unit = record.label.unit,
                    .op = record.op,
                    .dtype = record.dtype,
                    .variant = variant};
  std::copy_n(record.label.what.begin(), std::min(record.label.what.size(), print.what.size() - 1), print.what.begin());
  return print;
}

void require_agreement(const Monitor& monitor, std::span<const Fingerprint> by_rank) {
  const auto other = std::find_if(by_rank.begin(), by_rank.end(),
                                  [&](const auto& print) { return !(comparable(print, by_rank[0]) == by_rank[0]); });
  if (other == by_rank.end()) return;
  throw CollectiveError(message("ranks disagree: ", monitor.name_of(0), " is in ", words(by_rank[0]), ", ",
                                monitor.name_of(static_cast<int>(other - by_rank.begin())), " is in ", words(*other),
                                hidden_difference(by_rank[0], comparable(*other, by_rank[0])),
                                "; every rank must make the same collectives in the same order"));
}

void check_agreement(const Monitor& monitor, int ranks, const Fingerprint& mine,
                     FunctionRef<void(std::span<const std::byte>, std::span<std::byte>)> gather) {
  std::vector<Fingerprint> all(static_cast<std::size_t>(ranks));
  gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  require_agreement(monitor, all);
}

void check_exchanged_counts(const Monitor& monitor, int ranks, std::span<const std::int64_t> mine,
                            FunctionRef<void(std::span<const std::byte>, std::span<std::byte>)> gather) {
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

}  // namespace fsdp::comm
