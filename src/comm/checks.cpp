// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/checks.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

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

/// Returns what differs between two ranks whose descriptions read the same.
std::string_view hidden_difference(const Fingerprint& a, const Fingerprint& b) {
  if (words(a) != words(b)) return "";
  if (a.segments != b.segments) return "; the numbers of segments differ";
  if (a.sizes != b.sizes) return "; the counts of elements by rank differ";
  if (a.variant != b.variant) return "; what is done with the values (Write, SumOrder, Reduction or root) differs";
  return "";
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
  const auto other =
      std::find_if(by_rank.begin(), by_rank.end(), [&](const auto& print) { return !(print == by_rank[0]); });
  if (other == by_rank.end()) return;
  throw CollectiveError(message("ranks disagree: ", monitor.name_of(0), " is in ", words(by_rank[0]), ", ",
                                monitor.name_of(static_cast<int>(other - by_rank.begin())), " is in ", words(*other),
                                hidden_difference(by_rank[0], *other),
                                "; every rank must make the same collectives in the same order"));
}

void check_agreement(const Monitor& monitor, int ranks, const Fingerprint& mine,
                     FunctionRef<void(std::span<const std::byte>, std::span<std::byte>)> gather) {
  std::vector<Fingerprint> all(static_cast<std::size_t>(ranks));
  gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  require_agreement(monitor, all);
}

}  // namespace fsdp::comm
