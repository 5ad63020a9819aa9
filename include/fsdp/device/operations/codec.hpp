// SPDX-License-Identifier: Apache-2.0
/// @file
/// Numbers in blocks encoded as bytes: operations that encode, decode and add them, and AdamW's step on encoded
/// moments.
///
/// Blocks lie one after the other: each is its scale, a float, then its codes, padded with zeros to a multiple of 4
/// bytes. The last block of a tensor may have fewer elements. Therefore the bytes of a tensor are those of its parts,
/// one after the other, if the parts are cut at blocks. A block with an element that is not finite has the scale NaN
/// and decodes to NaN throughout; a block of zeros has the scale 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>

namespace fsdp::device {

/// The counter of stochastic rounding. An element's random number depends on the key and on its index in the whole
/// tensor, and therefore not on ranks and threads.
struct Draw {
  std::uint64_t key = 0;   ///< of the tensor and the step; 0: round to nearest, ties to even
  std::int64_t first = 0;  ///< index in the whole tensor of the first element
};

/// What a block's codes mean. An element is its code's value times the block's scale.
enum class BlockKind : std::uint8_t {
  int8,               ///< integers from -127 to 127; scale: largest magnitude / 127
  fp8,                ///< E4M3 (no infinities, largest 448); scale: largest magnitude / 448
  dynamic8,           ///< bitsandbytes' signed dynamic map; scale: largest magnitude
  dynamic8_unsigned,  ///< the same for numbers that are not negative
  nf4,                ///< the 16 values of NormalFloat4, two per byte, the first in the high half
};

/// A kind and its number of elements per block, which is even.
struct BlockCode {
  BlockKind kind = BlockKind::int8;
  std::int64_t elements = 256;

  constexpr std::int64_t bits() const { return kind == BlockKind::nf4 ? 4 : 8; }  ///< of a code
  /// Returns the bytes of one block, which may be the last one of a tensor.
  constexpr std::int64_t block_bytes(std::int64_t count) const { return 4 + (count * bits() + 31) / 32 * 4; }
  /// Returns the bytes of `count` elements.
  constexpr std::int64_t bytes(std::int64_t count) const {
    const std::int64_t rest = count % elements;
    return count / elements * block_bytes(elements) + (rest > 0 ? block_bytes(rest) : 0);
  }
  constexpr bool is_stochastic() const { return kind <= BlockKind::fp8; }  ///< whether it uses a Draw
  /// Throws LogicError unless `bytes` are those of `count` elements.
  void check(std::string_view operation, std::int64_t count, std::int64_t found) const {
    require(elements > 0 && elements % 2 == 0, operation, ": blocks of ", elements, " elements; take an even number");
    require(found == bytes(count), operation, ": ", count, " elements in blocks of ", elements, " are ", bytes(count),
            " bytes, not ", found);
  }
  friend constexpr bool operator==(const BlockCode&, const BlockCode&) = default;
};

/// y = the codes of x. Kinds that are not stochastic round to the nearest value, whatever the draw.
template <class T>
struct EncodeBlocks {
  static constexpr std::string_view name = "encode_blocks";

  BlockCode code = {};
  Tensor<const T> x = {};    // [n]
  Tensor<std::byte> y = {};  // [code.bytes(n)], aligned to 4 bytes
  Draw draw = {};

  auto tensors() const { return std::tie(x, y); }
  Cost cost() const { return {.bytes = x.bytes() + y.bytes()}; }
  void check() const {
    code.check(name, x.numel(), y.numel());
    require(x.contiguous() && y.contiguous(), name, ": tensors must be contiguous");
    require(draw.key == 0 || draw.first % code.elements == 0, name, ": element ", draw.first,
            " is inside a block; cut parts at multiples of ", code.elements);
  }
};

/// y = the values of x, rounded to T, or y += them.
template <class T>
struct DecodeBlocks {
  static constexpr std::string_view name = "decode_blocks";

  BlockCode code = {};
  Tensor<const std::byte> x = {};  // [code.bytes(n)], aligned to 4 bytes
  Tensor<T> y = {};                // [n]
  Write write = Write::overwrite;

  auto tensors() const { return std::tie(x, y); }
  Cost cost() const { return {.bytes = x.bytes() + (write == Write::accumulate ? 2 : 1) * y.bytes()}; }
  void check() const {
    code.check(name, y.numel(), x.numel());
    require(x.contiguous() && y.contiguous(), name, ": tensors must be contiguous");
  }
};

/// How AdamW's moments are encoded.
enum class MomentForm : std::uint8_t {
  bf16,      ///< the first moment rounded to nearest, the second stochastically
  dynamic8,  ///< blocks of 256 elements: dynamic8 and dynamic8_unsigned
};
inline constexpr BlockCode first_moment_code = {BlockKind::dynamic8, 256};
inline constexpr BlockCode second_moment_code = {BlockKind::dynamic8_unsigned, 256};

/// Returns the bytes of a moment of `count` elements.
constexpr std::int64_t moment_bytes(MomentForm form, std::int64_t count) {
  return form == MomentForm::bf16 ? 2 * count : first_moment_code.bytes(count);
}

/// AdamWStep with encoded moments. Decoded moments and the update are computed in float; moments are encoded
/// afterwards. In bf16 the second moment is rounded stochastically, since to nearest it never decays with a beta2
/// near 1. With dynamic8 the code of a first moment moves by one if its sign differs from the moment's (as in
/// bitsandbytes), and a second moment above 0 never becomes 0, so that m / (sqrt(v) + eps) is bounded. New moments that
/// are all zero bytes are moments of 0.
template <class Model = float>
struct CodedAdamWStep {
  static constexpr std::string_view name = "coded_adamw";

  AdamWRules rules = {};
  Tensor<const StepDecision> step = {};                     // [1]
  MainWeights main = {};                                    // [n]
  Tensor<std::byte> first_moment = {}, second_moment = {};  // [moment_bytes(form, n)] each, aligned to 4 bytes
  MomentForm form = MomentForm::dynamic8;
  Tensor<const float> gradient = {};  // [n]
  Tensor<Model> model = {};           // [n], or empty if `main` is the model
  Draw draw = {};                     ///< key of the tensor alone: the step's number is added to it

  auto tensors() const { return std::tie(step, gradient, main, first_moment, second_moment, model); }
  Cost cost() const {
    return {.bytes = 3 * main.bytes() + 2 * first_moment.bytes() + 2 * second_moment.bytes() + model.bytes()};
  }
  void check() const {
    const std::int64_t count = main.numel(), bytes = moment_bytes(form, count);
    require(first_moment.numel() == bytes && second_moment.numel() == bytes && gradient.numel() == count, name, ": ",
            count, " weights with moments of ", first_moment.numel(), " and ", second_moment.numel(), " bytes and ",
            gradient.numel(), " gradients; moments need ", bytes, " bytes each");
    require(model.numel() == 0 || (model.numel() == count && !std::is_same_v<Model, float>), name, ": ", count,
            " weights with ", model.numel(), " model weights; as many are needed or none, and none of float");
    require(main.contiguous() && first_moment.contiguous() && second_moment.contiguous() && gradient.contiguous() &&
                model.contiguous(),
            name, ": shards must be contiguous");
  }
};

}  // namespace fsdp::device
