// SPDX-License-Identifier: Apache-2.0

#include "exchange.hpp"

#include <algorithm>
#include <array>

namespace fsdp::bench {

void Exchange::allocate(const std::vector<comm::Record>& records) {
  const int ranks = communicator_.size();
  std::int64_t largest = 0, shards = 0;
  for (const comm::Record& record : records) {
    const bool gathers = record.op == comm::Op::all_gather;
    if (!gathers && record.op != comm::Op::reduce_scatter) continue;  // small values of the step's control
    Call& call = calls_.emplace_back(Call{.gathers = gathers, .counts = {}, .begin = shards});
    const std::int64_t elements = record.bytes / 4, piece = (elements + ranks - 1) / ranks;
    for (int rank = 0; rank < ranks; ++rank)
      call.counts.push_back(std::clamp<std::int64_t>(elements - rank * piece, 0, piece));
    largest = std::max(largest, elements);
    shards += (piece + 15) / 16 * 16;
    bytes_ += record.bytes;
  }
  shards_.assign(static_cast<std::size_t>(shards), 0.0f);
  full_.assign(static_cast<std::size_t>(2 * largest), 0.0f);
}

void Exchange::run() {
  std::size_t turn = 0;
  for (const Call& call : calls_) {
    float* const full = full_.data() + (++turn % 2) * (full_.size() / 2);
    const std::array<comm::Segment<float>, 1> segments{
        {{.local = shards_.data() + call.begin, .full = full, .counts = call.counts}}};
    if (call.gathers)
      comm::all_gather(communicator_, segments, {"bench"}).wait();
    else
      comm::reduce_scatter<float>(communicator_, segments, Write::overwrite, {"bench"}, comm::Contributions::spent)
          .wait();
  }
}

}  // namespace fsdp::bench
