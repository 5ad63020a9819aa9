// SPDX-License-Identifier: Apache-2.0
/// @file
/// Element types in kernels: values are widened to float for computing, and rounded once when stored.
///
/// Files that end in .cuh are read by nvcc and, for tests without a device, by the host's compiler.
#pragma once

#include <type_traits>

#include <tessera/fsdp/core/dtype.hpp>

#include "../host_device.hpp"

namespace fsdp::device::cuda {

FSDP_BOTH float widen(float x) { return x; }
FSDP_BOTH float widen(bf16 x) { return x; }
FSDP_BOTH float widen(f16 x) {
#if defined(__CUDA_ARCH__)
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#else
  return x;
#endif
}

/// Rounds to nearest, ties to even. Results are bit-identical with bf16(x) and f16(x), except that the device's
/// instruction converts NaN to 0x7fff.
template <class T>
FSDP_BOTH T narrow(float x) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    return x;
  } else {
#if defined(__CUDA_ARCH__)
    T rounded;
    if constexpr (std::is_same_v<T, bf16>)
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded.bits) : "f"(x));
    else
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded.bits) : "f"(x));
    return rounded;
#else
    return T(x);
#endif
  }
}

}  // namespace fsdp::device::cuda
