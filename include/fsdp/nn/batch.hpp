// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's input: a micro-batch of a model-specific type in host memory, its copy that the device can read, and its
/// rows that have a target. Data sources are in tessera/trainer/data/source.hpp; the check that a model can use a
/// batch is in tessera/fsdp/models/model.hpp.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/documents.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/nn/module.hpp>

namespace fsdp::nn {

/// Rows [begin, end) of a batch.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  constexpr std::int64_t rows() const { return end - begin; }  ///< number of rows
  friend constexpr bool operator==(const RowRange&, const RowRange&) = default;
};

using RowRun = RowRange;

using RowRuns = std::vector<RowRun>;

/// Returns the rows whose target is not negative. With `counts_only`, on a device whose memory cannot be read, returns
/// all rows.
inline RowRuns valid_rows(Tensor<const std::int32_t> targets, bool counts_only) {
  const std::int64_t rows = targets.numel();
  if (counts_only) return {{0, rows}};
  RowRuns runs;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] < 0) continue;
    if (runs.empty() || runs.back().end != row) runs.push_back({row, row});
    runs.back().end = row + 1;
  }
  return runs;
}

/// Returns the rows of [0, rows) that are in none of the runs.
inline RowRuns rows_between(const RowRuns& runs, std::int64_t rows) {
  RowRuns gaps;
  std::int64_t begin = 0;
  for (const RowRun& run : runs) {
    if (run.begin > begin) gaps.push_back({begin, run.begin});
    begin = run.end;
  }
  if (begin < rows) gaps.push_back({begin, rows});
  return gaps;
}

/// Returns the number of rows of all runs.
inline std::int64_t count_rows(const RowRuns& runs) {
  std::int64_t rows = 0;
  for (const RowRun& run : runs) rows += run.rows();
  return rows;
}

/// The rows of all runs in tiles of `rows_per_tile`; the last tile may be shorter. Tiles are computed lazily, since a
/// dry run skips most of them.
class RowTiles {
 public:
  /// No run is empty.
  RowTiles(RowRuns runs, std::int64_t rows_per_tile) : runs_(std::move(runs)), rows_per_tile_(rows_per_tile) {
    for (const RowRun& run : runs_) {
      before_.push_back(rows_);
      rows_ += run.rows();
    }
  }

  /// Returns the number of tiles.
  std::size_t size() const { return rows_ == 0 ? 0 : static_cast<std::size_t>(ceil_divide(rows_, rows_per_tile_)); }
  std::int64_t rows(std::size_t tile) const { return std::min(rows_per_tile_, rows_ - begin(tile)); }  ///< of a tile
  /// Returns the runs of a tile.
  RowRuns operator[](std::size_t tile) const {
    const std::int64_t from = begin(tile), to = from + rows(tile);
    RowRuns found;
    auto run = static_cast<std::size_t>(std::upper_bound(before_.begin(), before_.end(), from) - before_.begin()) - 1;
    for (; run < runs_.size() && before_[run] < to; ++run) {
      const std::int64_t shift = runs_[run].begin - before_[run];
      found.push_back({std::max(from + shift, runs_[run].begin), std::min(to + shift, runs_[run].end)});
    }
    return found;
  }

 private:
  std::int64_t begin(std::size_t tile) const { return static_cast<std::int64_t>(tile) * rows_per_tile_; }

  RowRuns runs_;                      ///< no run is empty
  std::vector<std::int64_t> before_;  ///< number of rows in the runs before each run
  std::int64_t rows_per_tile_, rows_ = 0;
};

}  // namespace fsdp::nn

namespace fsdp {

/// Counts of one or several micro-batches.
struct BatchCounts {
  std::int64_t valid_targets = 0;  ///< number of rows with a target: the divisor of the mean loss
  std::int64_t squares = 0;  ///< sum of the squared document lengths: twice the number of pairs in causal attention

  /// Adds another micro-batch's counts.
  BatchCounts& operator+=(const BatchCounts& other) {
    valid_targets += other.valid_targets;
    squares += other.squares;
    return *this;
  }
  friend bool operator==(const BatchCounts&, const BatchCounts&) = default;
};

}  // namespace fsdp

namespace fsdp::nn {

/// One rank's micro-batch: a value that views host memory. It contains `sequences` sequences of equal length, one after
/// the other.
///
/// `upload(context)` returns an aggregate with `input` for the entry and `targets` for the head. `pattern()` returns
/// the properties, other than values, that a captured step depends on, such as the rows with a target. A captured step
/// is replayed only if the patterns are equal.
///
/// Optional members follow. Dry runs plan with and without `documents` and `noise` (for_each_load). If another member
/// affects memory, the model's unread_batch must return the batch with the largest memory use.
/// - `part(part, parts)` returns the rows of one of `parts` ranks that share the sequences (rows_of_part). The counts
/// of
///   all parts add up to those of the batch. Without it sequences cannot be sharded;
/// - `without_targets()` returns the batch without targets. Passes that compute logits then neither validate nor upload
///   targets;
/// - `documents`, a device::CumulativeLengths, splits the sequences further;
/// - `noise`, a Noise for training passes, and `set_noise(key, first)`, which sets it; `first` is the number of the
///   batch's first sequence in the run;
/// - `unit`, a static std::string_view, is the log's word for the elements of a sequence, such as "points";
/// - `loss_unit`, also a static std::string_view, is the unit of the loss, such as "nats per token".
template <class B, class L>
concept Batch = std::copyable<B> && requires(const B batch, Context<L>& context) {
  { batch.sequences } -> std::convertible_to<std::int64_t>;
  { batch.counts() } -> std::same_as<BatchCounts>;
  { batch.pattern() == batch.pattern() } -> std::convertible_to<bool>;
  batch.upload(context).input;
  batch.upload(context).targets;
};

/// Returns the rows of part `part` of `parts`: [rows part / parts, rows (part + 1) / parts), rounded down. The sizes of
/// the parts differ by at most one row.
constexpr RowRange rows_of_part(std::int64_t rows, int part, int parts) {
  return {.begin = rows * part / parts, .end = rows * (part + 1) / parts};
}

namespace detail {

FSDP_HAS_MEMBER(documents)
FSDP_HAS_MEMBER(noise)
FSDP_HAS_MEMBER(set_noise)
FSDP_HAS_MEMBER(unit)
FSDP_HAS_MEMBER(loss_unit)

}  // namespace detail

/// Checks that a batch's optional members have the right types.
template <class B>
consteval bool check_batch_parts() {
  static_assert(
      !detail::has_documents<B>() ||
          requires(const B batch) {
            { batch.documents } -> std::convertible_to<device::CumulativeLengths>;
          },
      "fsdp: a batch has documents that are no device::CumulativeLengths; see tessera/fsdp/device/documents.hpp");
  static_assert(
      !detail::has_noise<B>() ||
          requires(const B batch) {
            { batch.noise } -> std::convertible_to<Noise>;
          },
      "fsdp: a batch has a noise that is no nn::Noise");
  static_assert(
      !detail::has_set_noise<B>() ||
          requires(B batch, std::uint64_t key, std::int64_t first) { batch.set_noise(key, first); },
      "fsdp: a batch has a set_noise that is no void set_noise(std::uint64_t key, std::int64_t first), so that all "
      "steps would have the same noise");
  static_assert(
      !detail::has_unit<B>() ||
          requires {
            std::string_view(B::unit);
            requires !std::is_member_pointer_v<decltype(&B::unit)>;
          },
      "fsdp: a batch has a unit that is no static constexpr std::string_view");
  static_assert(
      !detail::has_loss_unit<B>() ||
          requires {
            std::string_view(B::loss_unit);
            requires !std::is_member_pointer_v<decltype(&B::loss_unit)>;
          },
      "fsdp: a batch has a loss_unit that is no static constexpr std::string_view");
  return true;
}

/// Returns the log's word for the elements of a sequence: the batch's `unit`, or "positions" if it has none.
template <class B>
constexpr std::string_view unit_of() {
  static_assert(check_batch_parts<B>());
  if constexpr (detail::has_unit<B>())
    return B::unit;
  else
    return "positions";
}

template <class B, class L>
using UploadedBatch = decltype(std::declval<const B&>().upload(std::declval<Context<L>&>()));
template <class B, class L>
using InputOf = std::remove_cvref_t<decltype(std::declval<UploadedBatch<B, L>&>().input)>;
template <class B, class L>
using TargetsOf = std::remove_cvref_t<decltype(std::declval<UploadedBatch<B, L>&>().targets)>;

/// Calls plan(batch) for each variant of `batch` that affects memory: the batch that unread_batch returned, and, if its
/// type supports them, the same with random numbers and with packed documents. Dry runs plan for the largest.
template <class B, class Plan>
void for_each_load(B batch, std::int64_t sequence_length, Plan plan) {
  plan(std::as_const(batch));
  bool carries_more = false;
  if constexpr (detail::has_set_noise<B>()) {
    batch.set_noise(1, 0);
    carries_more = true;
  }
  std::vector<std::int64_t> lengths = {0};  // cumulative lengths of two documents in each sequence
  if constexpr (detail::has_documents<B>())
    if (batch.documents.empty()) {
      for (std::int64_t begin = 0; begin < batch.sequences * sequence_length; begin += sequence_length) {
        if (sequence_length > 1) lengths.push_back(begin + sequence_length / 2);
        lengths.push_back(begin + sequence_length);
      }
      batch.documents = lengths;
      carries_more = true;
    }
  if (carries_more) plan(std::as_const(batch));
}

/// A batch that can drop its targets.
template <class B>
concept BatchWithoutTargets = requires(const B batch) {
  { batch.without_targets() } -> std::same_as<B>;
};

/// Returns the batch for a pass that computes logits: without its targets if its type can drop them, else unchanged.
template <class B>
B for_logits(const B& batch) {
  if constexpr (BatchWithoutTargets<B>)
    return batch.without_targets();
  else
    return batch;
}

/// A batch whose rows several ranks can share.
template <class B>
concept DivisibleBatch = requires(const B batch, int part, int parts) {
  { batch.part(part, parts) } -> std::same_as<B>;
};

/// Returns the counts of one of `parts` ranks that share the sequences of a batch. Throws LogicError if `parts` > 1 and
/// the batch has no `part`.
template <class B>
BatchCounts counts_of_part(const B& batch, int part, int parts) {
  if (parts == 1) return batch.counts();
  if constexpr (DivisibleBatch<B>)
    return batch.part(part, parts).counts();
  else
    throw LogicError("batch: it has no part(part, parts), so that several ranks cannot share its sequences");
}

/// Returns a tensor that the device can read: `list` itself if the device reads host memory, else a copy in the
/// context's arena.
template <class L, class T>
Tensor<const T> on_device(Context<L>& context, Tensor<const T> list) {
  using Device = typename L::Device;
  if (Device::host_memory || list.data() == nullptr) return list;
  const auto copy = context.template save<T>(list.shape());
  device::move<Device>(context.stream, list.data(), copy.data(), copy.numel());
  return copy;
}

}  // namespace fsdp::nn

// Compiled into the library.
FSDP_LIST(fsdp::nn::RowRange)
