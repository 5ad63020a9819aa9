// SPDX-License-Identifier: Apache-2.0
/// @file
/// References of operations in plain float64 code, compiled once with optimization for the tests of all areas: they
/// have no device, and their loops are long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/device/operations.hpp>

namespace fsdp::device::reference {

using Values = std::vector<double>;

/// The largest difference, relative to the largest expected magnitude; infinite if any value is NaN.
double difference(const Values& found, const Values& expected);

/// The L2 norms of found - expected and of expected; infinite if the sizes differ.
std::pair<double, double> error_and_norm(const Values& found, const Values& expected);

/// The gradient of a function of x, by central differences in float64.
Values finite_differences(const std::function<double(const Values&)>& f, Values x);

double dot(const Values& a, const Values& b);

Values plus(Values a, const Values& b);

/// alpha x + beta y.
Values combined(double alpha, Values x, double beta, const Values& y);

/// 1 / sqrt(mean(x^2) + eps) for each row of `columns` elements.
Values rstd_reference(const Values& x, std::size_t columns, double eps);

Values norm_reference(const Values& x, const Values& w, double eps);

struct NormGradients {
  Values dx, dw;
};
NormGradients norm_gradients(const Values& x, const Values& w, const Values& dy, double eps);

/// The first token of a token's document, or of its sequence if there are no documents, computed without the code under
/// test.
std::int64_t first_of_document(std::span<const std::int64_t> documents, std::int64_t length, std::int64_t token);

/// Rotates every head of x [tokens, columns] by halves, to position(token).
Values rope_reference(Values x, std::size_t columns, std::size_t head_dim, double theta,
                      const std::function<std::int64_t(std::int64_t)>& position);

/// The summed loss of rows of logits, and its gradient. Rows with a negative target contribute nothing to either.
struct CrossEntropyReference {
  double loss = 0;
  Values gradient;
};
CrossEntropyReference cross_entropy_reference(const Values& logits, const std::vector<std::int32_t>& targets,
                                              double scale);

/// The product of a [m, k] and b [k, n]; `ta` and `tb` mark transposed storage.
Values product_reference(const Values& a, bool ta, const Values& b, bool tb, std::size_t m, std::size_t n,
                         std::size_t k);

// Attention.

struct Inputs {
  Values q, k, v, dout;  // [T, heads * d] or [T, kv_heads * d]
};
struct Results {
  Values out, lse, dq, dk, dv;
  friend bool operator==(const Results&, const Results&) = default;
};

/// The intermediate values that the float64 reference rounds to bf16.
enum class Rounding {
  none,
  operands,  ///< P, dS and all outputs: the roundings that every computation with bf16 matmuls makes
  stored     ///< also scores and dP: every matrix that an unblocked bf16 computation stores
};

/// The first key that a token attends to, computed without the code under test.
std::size_t first_key_of(const AttentionShape& shape, std::int64_t token);

/// Attention and its gradients, unblocked; query t attends to keys from first_key_of(t) on.
Results attend(const AttentionShape& shape, const Inputs& in, Rounding rounding);

/// L2 norm of the difference, relative to the L2 norm of the reference. Elements of the reference count as at least
/// 0.1, because the gradient of a softmax over few keys is a small difference of large numbers.
double relative(const Values& found, const Values& expected);

struct Errors {
  double out, lse, dq, dk, dv;
};
Errors errors(const Results& found, const Results& expected);

/// The sizes of a case in words.
std::string name(const AttentionShape& s, int threads);

}  // namespace fsdp::device::reference
