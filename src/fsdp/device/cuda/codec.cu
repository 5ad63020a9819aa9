// SPDX-License-Identifier: Apache-2.0
/// @file
/// Codes in blocks, and AdamW on encoded moments: each warp processes whole blocks. The arithmetic is that of the CPU
/// (../block_codes.hpp), and this file is compiled without contraction, so that the bytes are the same.
#include "../block_codes.hpp"
#include "kernel.cuh"

namespace fsdp::device::cuda {
namespace {

__device__ const DynamicMap maps[2] = {DynamicMap(true), DynamicMap(false)};
__device__ const NormalFloat4 nf4_map = {};

/// Returns the BlockCodes of a kind.
template <BlockKind kind>
__device__ __forceinline__ BlockCodes<kind> codes_of() {
  if constexpr (kind == BlockKind::nf4)
    return {nf4_map};
  else if constexpr (kind >= BlockKind::dynamic8)
    return {maps[kind == BlockKind::dynamic8 ? 0 : 1]};
  else
    return {};
}

/// Calls launcher.operator()<kind>() for a run-time kind.
template <class Launcher>
void with_kind(BlockKind kind, const Launcher& launcher) {
  switch (kind) {
    case BlockKind::int8: return launcher.template operator()<BlockKind::int8>();
    case BlockKind::fp8: return launcher.template operator()<BlockKind::fp8>();
    case BlockKind::dynamic8: return launcher.template operator()<BlockKind::dynamic8>();
    case BlockKind::dynamic8_unsigned: return launcher.template operator()<BlockKind::dynamic8_unsigned>();
    case BlockKind::nf4: return launcher.template operator()<BlockKind::nf4>();
  }
}

constexpr std::uint32_t block_threads = 128;

/// Returns a grid of one warp per block of elements.
Grid grid_of_warps(std::int64_t blocks) {
  const std::int64_t needed = (blocks * warp + block_threads - 1) / block_threads;
  return {.x = static_cast<std::uint32_t>(std::clamp<std::int64_t>(needed, 1, most_blocks)), .threads = block_threads};
}

/// Calls body(block, first, count, lane) for the blocks of this warp.
template <class Body>
__device__ __forceinline__ void for_blocks_of_warp(std::int64_t count, std::int64_t elements, const Body& body) {
  const std::int64_t blocks = (count + elements - 1) / elements;
  for (std::int64_t block = thread_of_grid() / warp; block < blocks; block += threads_of_grid() / warp) {
    const std::int64_t first = block * elements, rest = count - first;
    body(block, first, rest < elements ? rest : elements, static_cast<int>(threadIdx.x % warp));
  }
}

__device__ __forceinline__ std::uint32_t warp_largest(std::uint32_t bits) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const std::uint32_t other = exchange(bits, mask);
    bits = other > bits ? other : bits;
  }
  return bits;
}

/// Blocks of elements, and the bytes of each.
struct BlockSizes {
  std::int64_t count, elements, bytes;
};

template <BlockKind kind, class T>
__global__ void encode(BlockSizes sizes, const T* x, std::uint8_t* y, Draw draw) {
  for_blocks_of_warp(
      sizes.count, sizes.elements, [&](std::int64_t block, std::int64_t first, std::int64_t count, int lane) {
        const BlockCodes<kind> codes = codes_of<kind>();
        constexpr int pack = kind == BlockKind::nf4 ? 2 : 1;  // codes per byte
        const T* const from = x + first;
        std::uint8_t* const to = y + block * sizes.bytes;
        std::uint32_t largest = 0;
        for (std::int64_t i = lane; i < count; i += warp) {
          const std::uint32_t bits = bits_of(widen(from[i])) & 0x7fffffff;
          largest = bits > largest ? bits : largest;
        }
        const BlockScale scale(warp_largest(largest), BlockCodes<kind>::top);
        if (lane == 0) *reinterpret_cast<float*>(to) = scale.scale;
        const bool stochastic = draw.key != 0;
        const std::uint32_t row = dropout_row(draw.key, draw.first / sizes.elements + block);
        const std::int64_t bytes = (count + pack - 1) / pack;
        for (std::int64_t byte = lane; byte < (bytes + 3) / 4 * 4; byte += warp) {
          std::uint32_t found = 0;
#pragma unroll
          for (int part = 0; part < pack; ++part) {
            const std::int64_t i = byte * pack + part;
            if (i >= count) continue;
            const std::uint32_t code =
                codes.code(scale.ratio(widen(from[i])), dropout_word(row, static_cast<std::uint32_t>(i)), stochastic);
            const std::uint32_t zero = kind == BlockKind::nf4 ? 7 : 0;
            found |= (scale.inverse == 0 ? zero : code) << (4 * (pack - 1 - part));
          }
          to[4 + byte] = static_cast<std::uint8_t>(found);
        }
      });
}

template <BlockKind kind, class T>
__global__ void decode(BlockSizes sizes, const std::uint8_t* x, T* y, bool accumulate) {
  for_blocks_of_warp(sizes.count, sizes.elements,
                     [&](std::int64_t block, std::int64_t first, std::int64_t count, int lane) {
                       const BlockCodes<kind> codes = codes_of<kind>();
                       const std::uint8_t* const from = x + block * sizes.bytes;
                       const float scale = *reinterpret_cast<const float*>(from);
                       for (std::int64_t i = lane; i < count; i += warp) {
                         const std::uint8_t byte = from[4 + (kind == BlockKind::nf4 ? i / 2 : i)];
                         const int code = kind != BlockKind::nf4 ? byte : i % 2 == 0 ? byte >> 4 : byte & 15;
                         const float value = codes.value(static_cast<std::uint8_t>(code)) * scale;
                         y[first + i] = narrow<T>(accumulate ? widen(y[first + i]) + value : value);
                       }
                     });
}

__global__ void coded_adamw_factors(AdamWRules rules, const StepDecision* step, AdamWFactors* factors) {
  if (threadIdx.x == 0) *factors = AdamWFactors(rules, *step);
}

/// Steps blocks of 256 elements, of which each lane has eight. bf16 moments have blocks for their random numbers: these
/// are counted in the whole tensor, so the first may begin before this part, at `draw.first` modulo 256.
template <MomentForm form, class Model>
__global__ void coded_adamw(std::int64_t count, const StepDecision* step, const AdamWFactors* known, float* main,
                            std::uint8_t* first_moment, std::uint8_t* second_moment, const float* gradient,
                            Model* model, Draw tensor) {
  constexpr int elements = 256, share = elements / warp;
  const AdamWFactors factors = *known;
  const bool skipped = step->skipped != 0;
  const Draw draw = step_draw(tensor, 0, *step);
  const std::int64_t before = form == MomentForm::bf16 ? draw.first % elements : 0;
  for_blocks_of_warp(
      before + count, elements, [&](std::int64_t block, std::int64_t first, std::int64_t length, int lane) {
        std::uint8_t* const m_bytes = first_moment + block * (4 + elements);  // of dynamic8
        std::uint8_t* const v_bytes = second_moment + block * (4 + elements);
        auto* const m_halves = reinterpret_cast<bf16*>(first_moment);
        auto* const v_halves = reinterpret_cast<bf16*>(second_moment);
        const auto first_codes = codes_of<BlockKind::dynamic8>();
        const auto second_codes = codes_of<BlockKind::dynamic8_unsigned>();
        float m[share] = {}, v[share] = {};
        std::uint32_t m_largest = 0, v_largest = 0;
#pragma unroll
        for (int j = 0; j < share; ++j) {
          const int i = lane + j * static_cast<int>(warp);
          const std::int64_t at = first + i - before;
          if (i >= length || at < 0) continue;
          float w = main[at];
          if (!skipped) {
            if constexpr (form == MomentForm::bf16) {
              m[j] = widen(m_halves[at]);
              v[j] = widen(v_halves[at]);
            } else {
              m[j] = first_codes.value(m_bytes[4 + i]) * *reinterpret_cast<const float*>(m_bytes);
              v[j] = second_codes.value(v_bytes[4 + i]) * *reinterpret_cast<const float*>(v_bytes);
            }
            device::adamw(factors, w, m[j], v[j], gradient[at]);
            main[at] = w;
            const std::uint32_t m_bits = bits_of(m[j]) & 0x7fffffff, v_bits = bits_of(v[j]) & 0x7fffffff;
            m_largest = m_bits > m_largest ? m_bits : m_largest;
            v_largest = v_bits > v_largest ? v_bits : v_largest;
          }
          if (model != nullptr) model[at] = narrow<Model>(w);
        }
        if (skipped) return;
        const BlockScale m_scale(warp_largest(m_largest), 1), v_scale(warp_largest(v_largest), 1);
        __syncwarp();  // all lanes have read the old scales
    if (form == MomentForm::dynamic8 && lane == 0) {
          *reinterpret_cast<float*>(m_bytes) = m_scale.scale;
          *reinterpret_cast<float*>(v_bytes) = v_scale.scale;
        }
        const std::uint32_t row = dropout_row(draw.key, draw.first / elements + block);
#pragma unroll
        for (int j = 0; j < share; ++j) {
          const int i = lane + j * static_cast<int>(warp);
          const std::int64_t at = first + i - before;
          if (i >= length || at < 0) continue;
          if constexpr (form == MomentForm::bf16) {
            m_halves[at].bits = bf16_bits(m[j], 0, false);
            v_halves[at].bits = bf16_bits(v[j], dropout_word(row, static_cast<std::uint32_t>(i)), draw.key != 0);
          } else {
            const int m_code = guarded_first(first_codes.code(m_scale.ratio(m[j]), 0, false), m[j]);
            const int v_code = guarded_second(second_codes.code(v_scale.ratio(v[j]), 0, false), v[j]);
            m_bytes[4 + i] = static_cast<std::uint8_t>(m_scale.inverse == 0 ? 0 : m_code);
            v_bytes[4 + i] = static_cast<std::uint8_t>(v_scale.inverse == 0 ? 0 : v_code);
          }
        }
      });
}

BlockSizes sizes_of(const BlockCode& code, std::int64_t count) {
  return {.count = count, .elements = code.elements, .bytes = code.block_bytes(code.elements)};
}
Grid grid_of_codes(const BlockCode& code, std::int64_t count) {
  return grid_of_warps(ceil_divide(count, code.elements));
}

}  // namespace

template <class T>
void compute(Lane lane, const EncodeBlocks<T>& op) {
  if (op.x.numel() == 0) return;
  with_kind(op.code.kind, [&]<BlockKind kind>() {
    launch(lane, "encode_blocks", encode<kind, T>, grid_of_codes(op.code, op.x.numel()), 0,
           sizes_of(op.code, op.x.numel()), op.x.data(), reinterpret_cast<std::uint8_t*>(op.y.data()), op.draw);
  });
}

template <class T>
void compute(Lane lane, const DecodeBlocks<T>& op) {
  if (op.y.numel() == 0) return;
  with_kind(op.code.kind, [&]<BlockKind kind>() {
    launch(lane, "decode_blocks", decode<kind, T>, grid_of_codes(op.code, op.y.numel()), 0,
           sizes_of(op.code, op.y.numel()), reinterpret_cast<const std::uint8_t*>(op.x.data()), op.y.data(),
           op.write == Write::accumulate);
  });
}

/// `memory` stores the bias corrections, which are computed once instead of by every thread.
template <class Model>
void compute(Lane lane, const CodedAdamWStep<Model>& op, Scratch memory) {
  const std::int64_t count = op.main.numel();
  if (count == 0) return;
  auto* const factors = reinterpret_cast<AdamWFactors*>(memory.data);
  launch(lane, "coded_adamw_factors", coded_adamw_factors, Grid{.threads = warp}, 0, op.rules, op.step.data(), factors);
  const auto kernel =
      op.form == MomentForm::bf16 ? coded_adamw<MomentForm::bf16, Model> : coded_adamw<MomentForm::dynamic8, Model>;
  launch(lane, "coded_adamw", kernel, grid_of_warps(ceil_divide(count, std::int64_t{256}) + 1), 0, count,
         op.step.data(), factors, op.main.data(), reinterpret_cast<std::uint8_t*>(op.first_moment.data()),
         reinterpret_cast<std::uint8_t*>(op.second_moment.data()), op.gradient.data(), op.model.data(), op.draw);
}

FSDP_FOR_TYPES(compute, Lane, EncodeBlocks)
FSDP_FOR_TYPES(compute, Lane, DecodeBlocks)
FSDP_FOR_TYPES(compute, Lane, CodedAdamWStep, Scratch)

}  // namespace fsdp::device::cuda
