// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/transfer.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#ifdef __SSE2__
#include <emmintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

#include <tessera/fsdp/core/hash.hpp>

#include "../fsdp/device/cpu/isa.hpp"
#include "sum_loops.hpp"

namespace fsdp::comm {
namespace {

/// Minimum number of elements for which results are written past the caches.
constexpr std::int64_t least_streamed = 1 << 20;

/// Calls body(begin, end) on parts of [0, count), one per thread, cut at multiples of `sum_block`. `asked`: the
/// requested number of threads; 0: the calling thread's setting.
template <class Body>
void split_over_threads(std::int64_t count, std::int64_t element_bytes, int asked, const Body& body) {
#ifdef _OPENMP
  constexpr std::int64_t least_parallel_bytes = 1 << 20;  // below this size, a second thread costs more than it saves
  const std::int64_t threads = asked > 0 ? asked : omp_get_max_threads();
  if (threads > 1 && count * element_bytes >= least_parallel_bytes && omp_in_parallel() == 0) {
    const std::int64_t part = (count / threads / sum_block + 1) * sum_block;
#pragma omp parallel for schedule(static) num_threads(static_cast <int>(threads))
    for (std::int64_t thread = 0; thread < threads; ++thread) {
      const std::int64_t begin = std::min(thread * part, count);
      body(begin, std::min(begin + part, count));
    }
    return;
  }
#else
  static_cast<void>(element_bytes);
  static_cast<void>(asked);
#endif
  body(std::int64_t{0}, count);
}

}  // namespace

std::int64_t ByteSegment::begin(int rank) const {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
}

std::int64_t ByteSegment::total() const { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

std::int64_t ByteSegment::sent_begin(int peer) const {
  return sent.empty() ? 0 : std::accumulate(sent.begin(), sent.begin() + peer, std::int64_t{0});
}

std::int64_t ByteSegment::local_total(int rank) const {
  return sent.empty() ? count(rank) : std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
}

void describe(Transfer& transfer, Op op, DType dtype, DType wire, Write write) {
  std::vector<ByteSegment> segments = std::move(transfer.segments);
  segments.clear();
  transfer = {};
  transfer.op = op;
  transfer.dtype = dtype;
  transfer.wire = wire;
  transfer.write = write;
  transfer.segments = std::move(segments);
}

void add_segment(Transfer& transfer, const ByteSegment& segment) {
  transfer.segments.push_back(segment);
  ++transfer.segment_count;
  if (!segment.sent.empty()) return;  // each rank counts only its own elements
  for (const std::int64_t count : segment.counts) {
    transfer.elements += count;
    transfer.counts_hash = mixed(transfer.counts_hash ^ static_cast<std::uint64_t>(count));
  }
}

void describe(Transfer& transfer, Op op, const PartList& parts, DType wire, Write write) {
  describe(transfer, op, parts.dtype, wire, write);
  for (std::size_t index = 0; index < parts.count; ++index) add_segment(transfer, parts[index]);
}

void require_same(int rank, const Outline& mine, int peer, const Outline& theirs) {
  if (mine == theirs) return;
  const auto words = [](const Outline& outline) {
    const bool rounds = outline.wire != outline.dtype;
    return message(name_of(outline.op), " (", name_of(outline.dtype), rounds ? " as " : "",
                   rounds ? name_of(outline.wire) : "", ", ", outline.segment_count, " segments, ", outline.elements,
                   " elements)");
  };
  const bool same_words = words(mine) == words(theirs);
  throw CollectiveError(
      message("ranks disagree: rank ", rank, " is in ", words(mine), ", rank ", peer, " is in ", words(theirs),
              !same_words                              ? ""
              : mine.root != theirs.root               ? ", of another root"
              : mine.counts_hash != theirs.counts_hash ? ", with other counts by rank"
                                                       : ", with another reduction",
              "; every rank must make the same collectives in the same order; Options::checks ", "tells more"));
}

void require_same_counts(const Monitor& monitor, const CountedPiece& piece) {
  require<CollectiveError>(piece.sent == piece.received, "ranks disagree: in exchange ", piece.exchange, ", ",
                           monitor.name_of(piece.from), " sends ", piece.sent, " elements to ",
                           monitor.name_of(piece.to), ", which receives ", piece.received,
                           "; give the receiver's receive_counts what the sender's send_counts say");
}

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes, int threads) {
  if (bytes == 0) return;
  split_over_threads(bytes, 1, threads, [&](std::int64_t begin, std::int64_t end) {
    if (end > begin) std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

void sum_in_order(std::span<const Contribution> contributions, DType wire, std::int64_t count, Write write, float* to,
                  int threads) {
  const bool overwrites = write == Write::overwrite;
  const bool in_place = std::any_of(contributions.begin(), contributions.end(), [&](const Contribution& contribution) {
    return contribution.data == reinterpret_cast<const std::byte*>(to);
  });
  const bool unchanged = contributions.size() == 1 && wire == DType::f32 && overwrites && in_place;
  if (count == 0 || unchanged) return;
  require(overwrites || !in_place, "sum_in_order: would add contributions to one of them");
  const bool streamed = count >= least_streamed && overwrites && !in_place;
  const SumLoops& loops = device::cpu::kernels<SumLoops>();
  const SumBlock sum{.contributions = contributions.data(),
                     .ranks = std::ssize(contributions),
                     .wire = wire,
                     .write = write,
                     .streamed = streamed,
                     .direct = !streamed && !in_place,
                     .to = to};
  split_over_threads(count, sizeof(float), threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += sum_block) loops.sum(sum, at, std::min(sum_block, end - at));
#ifdef __SSE2__
    if (streamed) _mm_sfence();  // orders streamed stores before later stores that publish the result to other threads
#endif
  });
}

void round_to_bf16(const float* from, std::int64_t count, bf16* to) {
  device::cpu::kernels<SumLoops>().round(from, count, to);
}

void copy_own_piece(const Transfer& transfer, int rank, int threads) {
  for (const ByteSegment& segment : transfer.segments) {
    std::byte* const place = segment.full + segment.begin(rank) * transfer.element_bytes();
    const std::byte* const own = segment.local + segment.sent_begin(rank) * transfer.element_bytes();
    if (place != own) copy_bytes(place, own, segment.count(rank) * transfer.element_bytes(), threads);
  }
}

}  // namespace fsdp::comm
