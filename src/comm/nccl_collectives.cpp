// SPDX-License-Identifier: Apache-2.0
#include "nccl_collectives.hpp"

#include <algorithm>

namespace fsdp::comm {
namespace {

using Kind = nccl::Call::Kind;

bool equal_counts(const ByteSegment& segment) {
  return std::adjacent_find(segment.counts.begin(), segment.counts.end(), std::not_equal_to<>()) ==
         segment.counts.end();
}

std::int64_t most_of(const ByteSegment& segment) {
  return *std::max_element(segment.counts.begin(), segment.counts.end());
}

float* floats(std::byte* data) { return reinterpret_cast<float*>(data); }

/// Elements [begin, begin + most) of every rank's piece of a segment, clipped to the piece.
struct Chunk {
  const ByteSegment& segment;
  std::int64_t begin = 0;
  std::int64_t most = 0;

  std::int64_t count(int rank) const { return std::clamp<std::int64_t>(segment.count(rank) - begin, 0, most); }
  /// Returns the start of the rank's part in `full`, for a segment of floats.
  std::byte* full(int rank) const {
    return segment.full + (segment.begin(rank) + begin) * static_cast<std::int64_t>(sizeof(float));
  }
  float* local() const { return floats(segment.local) + begin; }
};

template <class Add>
void for_each_chunk(const ByteSegment& segment, std::int64_t most, const Add& add) {
  const std::int64_t end = most_of(segment);
  for (std::int64_t begin = 0; begin < end; begin += most)
    add(Chunk{.segment = segment, .begin = begin, .most = std::min(most, end - begin)});
}

/// Adds a chunk's float sums, one reduce per root; this rank's result goes to `sum`.
void add_sums_by_root(NcclBatch& batch, const Chunk& chunk, NcclPlace place, std::byte* sum) {
  for (int root = 0; root < place.size; ++root)
    if (chunk.count(root) > 0)
      batch.add({.kind = Kind::reduce,
                 .from = chunk.full(root),
                 .to = root == place.rank ? sum : nullptr,
                 .count = chunk.count(root),
                 .dtype = DType::f32,
                 .peer = root});
}

/// Adds float sums; this rank's result goes to `sum`. One reduce-scatter if pieces are equal, else one reduce per root.
void add_direct_sum(NcclBatch& batch, const ByteSegment& segment, NcclPlace place, std::byte* sum) {
  const std::int64_t most = most_of(segment);
  if (most == 0) return;
  if (equal_counts(segment)) {
    batch.make_room(1, 0);
    batch.add({.kind = Kind::reduce_scatter, .from = segment.full, .to = sum, .count = most, .dtype = DType::f32});
    return;
  }
  batch.make_room(place.size, 0);
  add_sums_by_root(batch, {.segment = segment, .most = most}, place, sum);
}

/// Adds accumulating float sums. Uses this rank's piece of its own contribution, which is spent, as scratch.
void add_spending_sum(NcclBatch& batch, const ByteSegment& segment, NcclPlace place) {
  const Chunk all{.segment = segment, .most = most_of(segment)};
  const std::int64_t own = all.count(place.rank);
  add_direct_sum(batch, segment, place, all.full(place.rank));
  if (own > 0)
    batch.then_sum({{.data = all.full(place.rank), .stored = DType::f32}}, own, Write::accumulate, all.local());
}

/// Adds accumulating float sums whose contributions must be kept. Uses staging memory as scratch, in chunks if it is
/// too small.
void add_staged_sum(NcclBatch& batch, const ByteSegment& segment, NcclPlace place) {
  const auto bytes_of = [](std::int64_t count) { return count * static_cast<std::int64_t>(sizeof(float)); };
  const std::int64_t capacity = batch.staging_bytes() / static_cast<std::int64_t>(sizeof(float));
  const bool whole = equal_counts(segment) && most_of(segment) <= capacity;
  for_each_chunk(segment, capacity, [&](const Chunk& chunk) {
    batch.make_room(whole ? 1 : place.size, NcclBatch::slot_bytes(bytes_of(chunk.most)));
    const std::int64_t own = chunk.count(place.rank);
    std::byte* const sum = own > 0 ? batch.stage(bytes_of(own)) : nullptr;
    if (whole)
      batch.add(
          {.kind = Kind::reduce_scatter, .from = segment.full, .to = sum, .count = chunk.most, .dtype = DType::f32});
    else
      add_sums_by_root(batch, chunk, place, sum);
    if (own > 0) batch.then_sum({{.data = sum, .stored = DType::f32}}, own, Write::accumulate, chunk.local());
  });
}

/// Adds sums of contributions that are exchanged and added here, in rank order. Contributions in a narrower type are
/// rounded into staging memory before they are sent. Floats are sent directly from `full`, from which this rank also
/// reads its own.
void add_exchanged_sum(NcclBatch& batch, const Transfer& transfer, const ByteSegment& segment, NcclPlace place) {
  const DType wire = transfer.wire;
  const bool rounds = wire != DType::f32;
  const auto slot = [&](std::int64_t count) { return NcclBatch::slot_bytes(count * size_of(wire)); };
  constexpr std::int64_t whole_slots = 64;  // number of elements whose bytes fill whole slots for every wire type
  const std::int64_t slots = rounds ? 2 * place.size : place.size;
  const std::int64_t most = batch.staging_bytes() / (slots * size_of(wire)) / whole_slots * whole_slots;
  for_each_chunk(segment, most, [&](const Chunk& chunk) {
    std::int64_t bytes = place.size * slot(chunk.most);
    for (int peer = 0; rounds && peer < place.size; ++peer) bytes += slot(chunk.count(peer));
    batch.make_room(2 * place.size, bytes);
    const std::int64_t own = chunk.count(place.rank);
    std::vector<Contribution> contributions(static_cast<std::size_t>(place.size));
    for (int peer = 0; peer < place.size; ++peer) {
      const std::int64_t count = chunk.count(peer);
      if (count > 0) {
        std::byte* const sent = rounds ? batch.stage(count * size_of(wire)) : chunk.full(peer);
        if (rounds) batch.queue().round(floats(chunk.full(peer)), wire, count, sent);
        if (peer == place.rank)
          contributions[static_cast<std::size_t>(peer)] = {.data = sent, .stored = wire};
        else
          batch.add({.kind = Kind::send, .from = sent, .count = count, .dtype = wire, .peer = peer});
      }
      if (own > 0 && peer != place.rank) {
        std::byte* const received = batch.stage(own * size_of(wire));
        batch.add({.kind = Kind::receive, .to = received, .count = own, .dtype = wire, .peer = peer});
        contributions[static_cast<std::size_t>(peer)] = {.data = received, .stored = wire};
      }
    }
    if (own > 0) batch.then_sum(std::move(contributions), own, transfer.write, chunk.local());
  });
}

}  // namespace

void add_all_gather(NcclBatch& batch, const Transfer& transfer, NcclPlace place) {
  for (const ByteSegment& segment : transfer.segments) {
    const std::int64_t most = most_of(segment);
    if (most == 0) continue;
    if (equal_counts(segment)) {
      batch.make_room(1, 0);
      batch.add({.kind = Kind::all_gather,
                 .from = segment.local,
                 .to = segment.full,
                 .count = most,
                 .dtype = transfer.dtype});
      continue;
    }
    batch.make_room(place.size, 0);
    for (int root = 0; root < place.size; ++root) {
      std::byte* const piece = segment.full + segment.begin(root) * transfer.element_bytes();
      if (segment.count(root) > 0)
        batch.add({.kind = Kind::broadcast,
                   .from = root == place.rank ? segment.local : piece,
                   .to = piece,
                   .count = segment.count(root),
                   .dtype = transfer.dtype,
                   .peer = root});
    }
  }
}

void add_reduce_scatter(NcclBatch& batch, const Transfer& transfer, NcclPlace place) {
  for (const ByteSegment& segment : transfer.segments) {
    if (transfer.wire != DType::f32 || transfer.order == SumOrder::ranks)
      add_exchanged_sum(batch, transfer, segment, place);
    else if (transfer.write == Write::overwrite)
      add_direct_sum(batch, segment, place, segment.local);
    else if (transfer.contributions == Contributions::spent)
      add_spending_sum(batch, segment, place);
    else
      add_staged_sum(batch, segment, place);
  }
}

void add_all_reduce(NcclBatch& batch, const Transfer& transfer, NcclPlace place) {
  if (transfer.wire != DType::f32) {
    add_reduce_scatter(batch, transfer, place);
    batch.flush();
    return add_all_gather(batch, transfer, place);
  }
  for (const ByteSegment& segment : transfer.segments) {
    const std::int64_t count = segment.total();
    if (count == 0) continue;
    batch.make_room(1, 0);
    batch.add(
        {.kind = Kind::all_reduce, .from = segment.full, .to = segment.full, .count = count, .dtype = DType::f32});
  }
}

void add_all_to_all(NcclBatch& batch, const Transfer& transfer, NcclPlace place) {
  for (const ByteSegment& exchange : transfer.segments) {
    batch.make_room(2 * (place.size - 1), 0);
    for (int peer = 0; peer < place.size; ++peer) {
      const std::byte* const from = exchange.local + exchange.sent_begin(peer) * transfer.element_bytes();
      std::byte* const to = exchange.full + exchange.begin(peer) * transfer.element_bytes();
      const std::int64_t sent = exchange.sent_count(place.rank, peer);
      const std::int64_t received = exchange.count(peer);
      if (peer == place.rank) {
        batch.queue().move(from, to, received * transfer.element_bytes());
        continue;
      }
      if (sent > 0) batch.add({.kind = Kind::send, .from = from, .count = sent, .dtype = transfer.dtype, .peer = peer});
      if (received > 0)
        batch.add({.kind = Kind::receive, .to = to, .count = received, .dtype = transfer.dtype, .peer = peer});
    }
  }
}

}  // namespace fsdp::comm
