// SPDX-License-Identifier: Apache-2.0
#include "nccl_link.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/device/memory.hpp>

namespace fsdp::comm {
namespace {

using Kind = nccl::Call::Kind;

/// Collects calls until a group is full. All ranks must split their calls into groups at the same points, or a send
/// would wait for a receive in a later group. Therefore make_room takes the maximum that any rank needs.
class NcclBatch {
 public:
  /// Most calls per group; NCCL's limit is about 2048.
  static constexpr std::int64_t most_calls = 1024;

  explicit NcclBatch(const NcclLane& lane) : rank(lane.rank), size(lane.size), lane_(lane) {}

  const int rank, size;

  const AnyQueue& queue() const { return lane_.queue; }
  std::int64_t staging_bytes() const { return lane_.staging_bytes; }
  /// Returns the size of the staging memory for `bytes` bytes, including alignment.
  static std::int64_t slot_bytes(std::int64_t bytes) { return round_up(bytes, device::alignment); }

  /// Reserves room for the calls and staging of one piece. Flushes earlier pieces if it would not fit.
  void make_room(std::int64_t calls, std::int64_t slot_bytes) {
    if (calls_asked_ + calls > most_calls || bytes_asked_ + slot_bytes > staging_bytes()) flush();
    calls_asked_ += calls;
    bytes_asked_ += slot_bytes;
  }
  /// Returns staging memory, valid until the group's sums are done.
  std::byte* stage(std::int64_t bytes) {
    std::byte* const slot = lane_.staging + staged_;
    staged_ += slot_bytes(bytes);
    require(staged_ <= bytes_asked_ && staged_ <= staging_bytes(), "NCCL staging: ", staged_, " bytes are used of ",
            bytes_asked_, " asked for and ", staging_bytes(), " that there are");
    return slot;
  }
  void add(const nccl::Call& call) { calls_.push_back(call); }
  /// Adds a sum to run after the group: to = (or +=) the contributions in order.
  void then_sum(std::vector<Contribution> contributions, std::int64_t count, Write write, float* to) {
    sums_.push_back({.contributions = std::move(contributions), .count = count, .write = write, .to = to});
  }
  void flush() {
    lane_.link.issue(calls_, queue().native(), lane_.deadline);
    for (const Sum& sum : sums_)
      queue().sum(sum.contributions, sum.contributions[0].stored, sum.count, sum.write, sum.to);
    calls_.clear();
    sums_.clear();
    calls_asked_ = bytes_asked_ = staged_ = 0;
  }

 private:
  struct Sum {
    std::vector<Contribution> contributions;
    std::int64_t count;
    Write write;
    float* to;
  };

  const NcclLane& lane_;
  std::vector<nccl::Call> calls_;
  std::vector<Sum> sums_;
  std::int64_t calls_asked_ = 0;
  std::int64_t bytes_asked_ = 0;
  std::int64_t staged_ = 0;
};

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
  /// Returns the number of calls of its sum: one reduce-scatter if it is the whole segment and all pieces are equal,
  /// else one reduce for each of `ranks` roots.
  int calls(int ranks) const { return equal_counts(segment) && most == most_of(segment) ? 1 : ranks; }
  float* local() const { return floats(segment.local) + begin; }
};

template <class Add>
void for_each_chunk(const ByteSegment& segment, std::int64_t most, const Add& add) {
  const std::int64_t end = most_of(segment);
  for (std::int64_t begin = 0; begin < end; begin += most)
    add(Chunk{.segment = segment, .begin = begin, .most = std::min(most, end - begin)});
}

/// Adds a chunk's float sums; this rank's result goes to `sum`.
void add_sum(NcclBatch& batch, const Chunk& chunk, std::byte* sum) {
  if (chunk.calls(batch.size) == 1)
    return batch.add(
        {.kind = Kind::reduce_scatter, .from = chunk.full(0), .to = sum, .count = chunk.most, .dtype = DType::f32});
  for (int root = 0; root < batch.size; ++root)
    if (chunk.count(root) > 0)
      batch.add({.kind = Kind::reduce,
                 .from = chunk.full(root),
                 .to = root == batch.rank ? sum : nullptr,
                 .count = chunk.count(root),
                 .dtype = DType::f32,
                 .peer = root});
}

/// Adds float sums; this rank's result goes to `sum`.
void add_direct_sum(NcclBatch& batch, const ByteSegment& segment, std::byte* sum) {
  const Chunk all{.segment = segment, .most = most_of(segment)};
  if (all.most == 0) return;
  batch.make_room(all.calls(batch.size), 0);
  add_sum(batch, all, sum);
}

/// Adds accumulating float sums. Uses this rank's piece of its own contribution, which is spent, as scratch.
void add_spending_sum(NcclBatch& batch, const ByteSegment& segment) {
  const Chunk all{.segment = segment, .most = most_of(segment)};
  const std::int64_t own = all.count(batch.rank);
  add_direct_sum(batch, segment, all.full(batch.rank));
  if (own > 0)
    batch.then_sum({{.data = all.full(batch.rank), .stored = DType::f32}}, own, Write::accumulate, all.local());
}

/// Adds accumulating float sums whose contributions must be kept. Uses staging memory as scratch, in chunks if it is
/// too small.
void add_staged_sum(NcclBatch& batch, const ByteSegment& segment) {
  const auto bytes_of = [](std::int64_t count) { return count * static_cast<std::int64_t>(sizeof(float)); };
  const std::int64_t capacity = batch.staging_bytes() / static_cast<std::int64_t>(sizeof(float));
  for_each_chunk(segment, capacity, [&](const Chunk& chunk) {
    batch.make_room(chunk.calls(batch.size), NcclBatch::slot_bytes(bytes_of(chunk.most)));
    const std::int64_t own = chunk.count(batch.rank);
    std::byte* const sum = own > 0 ? batch.stage(bytes_of(own)) : nullptr;
    add_sum(batch, chunk, sum);
    if (own > 0) batch.then_sum({{.data = sum, .stored = DType::f32}}, own, Write::accumulate, chunk.local());
  });
}

/// Adds sums of contributions that are exchanged and added here, in rank order. Contributions in a narrower type are
/// rounded into staging memory before they are sent. Floats are sent directly from `full`, from which this rank also
/// reads its own.
void add_exchanged_sum(NcclBatch& batch, const Transfer& transfer, const ByteSegment& segment) {
  const DType wire = transfer.wire;
  const bool rounds = wire != DType::f32;
  const auto slot = [&](std::int64_t count) { return NcclBatch::slot_bytes(count * size_of(wire)); };
  constexpr std::int64_t whole_slots = 64;  // number of elements whose bytes fill whole slots for every wire type
  const std::int64_t slots = rounds ? 2 * batch.size : batch.size;
  const std::int64_t most = batch.staging_bytes() / (slots * size_of(wire)) / whole_slots * whole_slots;
  for_each_chunk(segment, most, [&](const Chunk& chunk) {
    std::int64_t bytes = batch.size * slot(chunk.most);
    for (int peer = 0; rounds && peer < batch.size; ++peer) bytes += slot(chunk.count(peer));
    batch.make_room(2 * batch.size, bytes);
    const std::int64_t own = chunk.count(batch.rank);
    std::vector<Contribution> contributions(static_cast<std::size_t>(batch.size));
    for (int peer = 0; peer < batch.size; ++peer) {
      const std::int64_t count = chunk.count(peer);
      if (count > 0) {
        std::byte* const sent = rounds ? batch.stage(count * size_of(wire)) : chunk.full(peer);
        if (rounds) batch.queue().round(floats(chunk.full(peer)), wire, count, sent);
        if (peer == batch.rank)
          contributions[static_cast<std::size_t>(peer)] = {.data = sent, .stored = wire};
        else
          batch.add({.kind = Kind::send, .from = sent, .count = count, .dtype = wire, .peer = peer});
      }
      if (own > 0 && peer != batch.rank) {
        std::byte* const received = batch.stage(own * size_of(wire));
        batch.add({.kind = Kind::receive, .to = received, .count = own, .dtype = wire, .peer = peer});
        contributions[static_cast<std::size_t>(peer)] = {.data = received, .stored = wire};
      }
    }
    if (own > 0) batch.then_sum(std::move(contributions), own, transfer.write, chunk.local());
  });
}

void add_all_gather(NcclBatch& batch, const Transfer& transfer) {
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
    batch.make_room(batch.size, 0);
    for (int root = 0; root < batch.size; ++root) {
      std::byte* const piece = segment.full + segment.begin(root) * transfer.element_bytes();
      if (segment.count(root) > 0)
        batch.add({.kind = Kind::broadcast,
                   .from = root == batch.rank ? segment.local : piece,
                   .to = piece,
                   .count = segment.count(root),
                   .dtype = transfer.dtype,
                   .peer = root});
    }
  }
}

void add_reduce_scatter(NcclBatch& batch, const Transfer& transfer) {
  for (const ByteSegment& segment : transfer.segments) {
    if (transfer.wire != DType::f32 || transfer.order == SumOrder::ranks)
      add_exchanged_sum(batch, transfer, segment);
    else if (transfer.write == Write::overwrite)
      add_direct_sum(batch, segment, segment.local);
    else if (transfer.contributions == Contributions::spent)
      add_spending_sum(batch, segment);
    else
      add_staged_sum(batch, segment);
  }
}

void add_all_reduce(NcclBatch& batch, const Transfer& transfer) {
  if (transfer.wire != DType::f32) {
    add_reduce_scatter(batch, transfer);
    batch.flush();
    return add_all_gather(batch, transfer);
  }
  for (const ByteSegment& segment : transfer.segments) {
    const std::int64_t count = segment.total();
    if (count == 0) continue;
    batch.make_room(1, 0);
    batch.add(
        {.kind = Kind::all_reduce, .from = segment.full, .to = segment.full, .count = count, .dtype = DType::f32});
  }
}

void add_all_to_all(NcclBatch& batch, const Transfer& transfer) {
  for (const ByteSegment& exchange : transfer.segments) {
    batch.make_room(2 * (batch.size - 1), 0);
    for (int peer = 0; peer < batch.size; ++peer) {
      const std::byte* const from = exchange.local + exchange.sent_begin(peer) * transfer.element_bytes();
      std::byte* const to = exchange.full + exchange.begin(peer) * transfer.element_bytes();
      const std::int64_t sent = exchange.sent_count(batch.rank, peer);
      const std::int64_t received = exchange.count(peer);
      if (peer == batch.rank) {
        batch.queue().move(from, to, received * transfer.element_bytes());
        continue;
      }
      if (sent > 0) batch.add({.kind = Kind::send, .from = from, .count = sent, .dtype = transfer.dtype, .peer = peer});
      if (received > 0)
        batch.add({.kind = Kind::receive, .to = to, .count = received, .dtype = transfer.dtype, .peer = peer});
    }
  }
}

}  // namespace

void enqueue_collective(const NcclLane& lane, const Transfer& transfer) {
  NcclBatch batch(lane);
  switch (transfer.op) {
    case Op::all_gather: add_all_gather(batch, transfer); break;
    case Op::reduce_scatter: add_reduce_scatter(batch, transfer); break;
    case Op::all_reduce: add_all_reduce(batch, transfer); break;
    case Op::all_to_all: add_all_to_all(batch, transfer); break;
    default: throw LogicError(message("NCCL: ", name_of(transfer.op), " moves small values, not tensors"));
  }
  batch.flush();
}

}  // namespace fsdp::comm
