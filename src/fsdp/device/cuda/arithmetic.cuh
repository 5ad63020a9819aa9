// SPDX-License-Identifier: Apache-2.0
/// @file
/// The kernels' arithmetic on one element or one pair, in float. Host tests use the same functions.
///
/// Values are widened to float for computing, and rounded once when stored. NaN and infinity in an input propagate to
/// the output; no function here clamps. Files that end in .cuh are read by nvcc and, for tests without a device, by the
/// host's compiler.
#pragma once

#include <cfloat>
#include <cmath>
#include <type_traits>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/compute/rope.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>

#include "../host_device.hpp"
#include "../optimizer_step.hpp"

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

FSDP_BOTH float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
FSDP_BOTH float silu(float x) { return x * sigmoid(x); }
FSDP_BOTH float swiglu(float gate, float up) { return silu(gate) * up; }

/// Overwrites gate and up with their gradients, and dh with h.
FSDP_BOTH void swiglu_backward(float& gate, float& up, float& dh) {
  const float sigma = sigmoid(gate);
  const float activated = gate * sigma;
  const float h = activated * up;
  gate = dh * up * sigma * (1.0f + gate * (1.0f - sigma));
  up = dh * activated;
  dh = h;
}

/// Returns 1 / sqrt(mean of squares + eps) of a row.
FSDP_BOTH float rms_scale(float sum_of_squares, float columns, float eps) {
  return 1.0f / sqrtf(sum_of_squares / columns + eps);
}
/// Returns the gradient of one element x; `projection` is the mean over the row of dy * w * x * rstd.
FSDP_BOTH float rms_norm_dx(float x, float w, float dy, float rstd, float projection) {
  return rstd * (dy * w - x * rstd * projection);
}

/// Rotates one pair of rotate_half; negate `sin` to rotate back.
FSDP_BOTH void rotate(float& low, float& high, float cos, float sin) {
  const float before = low;
  low = before * cos - high * sin;
  high = high * cos + before * sin;
}

/// A softmax in progress (Milakov and Gimelshein 2018): the largest logit, and the sum of exp(logit - largest).
/// The sum is NaN once a logit was NaN or +infinity.
struct Softmax {
  float maximum = -FLT_MAX;
  float sum = 0;

  FSDP_BOTH void add(float logit) {
    const float above = logit - maximum;
    const float smaller = expf(-fabsf(above));
    if (above > 0) {
      sum = sum * smaller + (1.0f + (logit - logit));  // exp(logit - logit), or NaN if logit is infinite
      maximum = logit;
    } else {
      sum += smaller;
    }
  }
  FSDP_BOTH void add(const Softmax& other) {
    const float above = other.maximum - maximum;
    const float smaller = expf(-fabsf(above));
    sum = above > 0 ? sum * smaller + other.sum : sum + other.sum * smaller;
    if (above > 0) maximum = other.maximum;
  }
};

/// Returns the loss of a row whose target has the logit `target`.
FSDP_BOTH double negative_log_likelihood(double maximum, double sum, double target) {
  return log(sum) + (maximum - target);
}
/// Returns exp(logit - maximum) * factor, where factor = scale / sum.
FSDP_BOTH float softmax_gradient(float logit, float maximum, float factor) { return expf(logit - maximum) * factor; }
/// Returns the gradient of the target's logit, computed in double, so that p - 1 is rounded once.
FSDP_BOTH float target_gradient(float logit, double maximum, double sum, float scale) {
  return static_cast<float>(static_cast<double>(scale) * (exp(static_cast<double>(logit) - maximum) / sum - 1.0));
}

/// Reads a contribution to a reduction: stored as one type, rounded to the wire type.
template <class Stored, class Wire>
FSDP_BOTH float contribution(Stored value) {
  return widen(narrow<Wire>(widen(value)));
}

}  // namespace fsdp::device::cuda
