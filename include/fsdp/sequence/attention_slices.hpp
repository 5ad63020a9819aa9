// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slices of attention's parameters for ranges of heads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/nn/residual_attention.hpp>
#include <tessera/fsdp/nn/stages.hpp>

namespace fsdp::nn {

/// Contiguous ranges of query heads and of key-value heads, so that the weights of both are slices. Either range may be
/// empty.
struct HeadPiece {
  HeadRange q = {}, kv = {};
};

/// Selects the rows of q, k and v, and the columns of out, that a range of query heads uses.
struct AttentionSlices {
  std::int64_t per_kv = 1;    ///< number of query heads that share a key-value head: Hq / Hkv
  std::int64_t head_dim = 0;  ///< d

  /// Returns the number of a rank's query heads that share each key-value head of its matrices k and v. These matrices
  /// have `kv_count` key-value heads, one after the other. A key-value head may be duplicated if the rank's range
  /// begins or ends inside its group of query heads. A part either covers whole groups or a part of one group.
  std::int64_t group(const HeadRange& range) const {
    const std::int64_t of_rank = std::gcd(std::gcd(per_kv, range.rank_end - range.rank_begin), range.rank_begin);
    const std::int64_t part = range.size();
    return of_rank % part == 0 || part % of_rank == 0 ? of_rank : std::gcd(of_rank, part);
  }
  /// Returns the number of key-value heads in the matrices of a rank.
  std::int64_t kv_count(const HeadRange& range) const { return (range.rank_end - range.rank_begin) / group(range); }
  /// Returns the range of these key-value heads that a part reads.
  HeadRange kv_of(const HeadRange& range) const {
    const std::int64_t begin = range.begin - range.rank_begin, shared = group(range);
    return {begin / shared, (begin + range.size() - 1) / shared + 1};
  }
  /// Whether a part is the first, or the last, of the parts that read its key-value heads.
  /// @{
  bool begins_kv(const HeadRange& range) const { return (range.begin - range.rank_begin) % group(range) == 0; }
  bool ends_kv(const HeadRange& range) const { return (range.end - range.rank_begin) % group(range) == 0; }
  /// @}

  /// Calls body(piece, columns) for each piece of each range, with the piece's columns of the range's matrices. A range
  /// is one piece unless a key-value head is duplicated. With several parts, query heads and key-value heads are
  /// separate pieces. `in`: the matrices q, k and v of each range; with several parts, k and v may be empty and then
  /// have no pieces.
  template <class T, class Body>
  void for_each_piece(std::span<const HeadRange> ranges, std::span<const std::array<Tensor<T>, 3>> in,
                      Body body) const {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const HeadRange& range = ranges[i];
      const std::int64_t first = range.rank_begin, shared = group(range);
      const bool whole = range.begin == first && range.end == range.rank_end;
      if (!whole) body(HeadPiece{.q = range}, std::array{in[i][0], Tensor<T>(), Tensor<T>()});
      if (!whole && in[i][1].data() == nullptr) continue;
      for (std::int64_t begin = first, end = first; begin < range.rank_end; begin = end) {
        do end += shared;
        while (end < range.rank_end && end / per_kv == (end - 1) / per_kv + 1);
        const auto columns = [&](const Tensor<T>& matrix, std::int64_t heads_each) {
          return matrix.slice_columns((begin - first) / heads_each * head_dim, (end - first) / heads_each * head_dim);
        };
        body(
            HeadPiece{.q = whole ? HeadRange{begin, end} : HeadRange{}, .kv = {begin / per_kv, (end - 1) / per_kv + 1}},
            std::array{whole ? columns(in[i][0], 1) : Tensor<T>(), columns(in[i][1], shared),
                       columns(in[i][2], shared)});
      }
    }
  }

  /// Returns the fields, weights or gradients, cut to the rows that a piece uses. A field of which the piece uses no
  /// rows is absent.
  template <class V>
  AttentionFields<V> of_piece(AttentionFields<V> fields, const HeadPiece& piece) const {
    const auto cut = [&](V& field, const HeadRange& range) {
      if (range.size() == 0) field = V();
      if (present(field)) field = rows(field, range.begin * head_dim, range.end * head_dim);
    };
    for (V* field : {&fields.q, &fields.q_bias, &fields.qkv_paths.b[0]}) cut(*field, piece.q);
    for (V* field : {&fields.k, &fields.k_bias, &fields.qkv_paths.b[1]}) cut(*field, piece.kv);
    for (V* field : {&fields.v, &fields.v_bias, &fields.qkv_paths.b[2]}) cut(*field, piece.kv);
    return fields;
  }
  /// Returns the fields that of_piece cuts.
  template <class V>
  static std::array<V, 9> cut_by_pieces(const AttentionFields<V>& fields) {
    const auto& b = fields.qkv_paths.b;
    return {fields.q, fields.k, fields.v, fields.q_bias, fields.k_bias, fields.v_bias, b[0], b[1], b[2]};
  }

  /// Returns the fields, with `out` cut to the columns that read a range.
  template <class V>
  AttentionFields<V> of_output(AttentionFields<V> fields, const HeadRange& range) const {
    for (V* field : {&fields.out, &fields.out_path.a[0]})
      if (present(*field)) *field = columns(*field, range.begin * head_dim, range.end * head_dim);
    return fields;
  }

 private:
  // V is a Tensor or a GradientView. A slice of a gradient shares the gradient's `written` flag, which write_in_parts
  // has set.

  template <class V>
  static bool present(const V& field) {
    if constexpr (requires { field.wanted(); })
      return field.wanted();
    else
      return field.data() != nullptr;
  }
  template <class V>
  static V rows(const V& field, std::int64_t begin, std::int64_t end) {
    if constexpr (requires { field.written; })
      return field.rows(begin, end, field.written);
    else
      return field.slice(begin, end);
  }
  template <class V>
  static V columns(const V& field, std::int64_t begin, std::int64_t end) {
    if constexpr (requires { field.written; })
      return field.columns(begin, end, field.written);
    else
      return field.slice_columns(begin, end);
  }
};

}  // namespace fsdp::nn
