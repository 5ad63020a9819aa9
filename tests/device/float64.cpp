// SPDX-License-Identifier: Apache-2.0
#include "float64.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fsdp::device::reference {

double difference(const Values& found, const Values& expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double most = 0, largest = 1e-30;
  for (auto at = found.begin(); const double value : expected) {
    const double error = std::abs(*at++ - value);
    if (!(error <= 1e300)) return std::numeric_limits<double>::infinity();
    most = std::max(most, error);
    largest = std::max(largest, std::abs(value));
  }
  return most / largest;
}

std::pair<double, double> error_and_norm(const Values& found, const Values& expected) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (found.size() != expected.size()) return {infinity, 0};
  double error = 0, norm = 0;
  for (auto at = found.begin(); const double value : expected) {
    error += (*at - value) * (*at - value);
    norm += value * value;
    ++at;
  }
  return {std::sqrt(error), std::sqrt(norm)};
}

Values finite_differences(const std::function<double(const Values&)>& f, Values x) {
  constexpr double step = 1e-5;
  Values gradient;
  for (double& value : x) {
    const double at = value;
    value = at + step;
    const double above = f(x);
    value = at - step;
    gradient.push_back((above - f(x)) / (2 * step));
    value = at;
  }
  return gradient;
}

double dot(const Values& a, const Values& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

Values plus(Values a, const Values& b) {
  std::transform(a.begin(), a.end(), b.begin(), a.begin(), std::plus());
  return a;
}

Values combined(double alpha, Values x, double beta, const Values& y) {
  std::transform(x.begin(), x.end(), y.begin(), x.begin(), [=](double a, double b) { return alpha * a + beta * b; });
  return x;
}

Values rstd_reference(const Values& x, std::size_t columns, double eps) {
  Values rstd;
  for (auto row = x.begin(); row < x.end(); row += static_cast<std::ptrdiff_t>(columns)) {
    const double squares = std::inner_product(row, row + static_cast<std::ptrdiff_t>(columns), row, 0.0);
    rstd.push_back(1 / std::sqrt(squares / static_cast<double>(columns) + eps));
  }
  return rstd;
}

Values norm_reference(const Values& x, const Values& w, double eps) {
  const Values rstd = rstd_reference(x, w.size(), eps);
  Values y = x;
  for (std::size_t i = 0; i < x.size(); ++i) y[i] *= rstd[i / w.size()] * w[i % w.size()];
  return y;
}

NormGradients norm_gradients(const Values& x, const Values& w, const Values& dy, double eps) {
  const Values rstd = rstd_reference(x, w.size(), eps);
  const auto columns = static_cast<double>(w.size());
  NormGradients found{.dx = Values(x.size()), .dw = Values(w.size())};
  Values means(rstd.size());  // of dy * w * x * rstd
  for (std::size_t i = 0; i < x.size(); ++i) {
    means[i / w.size()] += dy[i] * w[i % w.size()] * x[i] * rstd[i / w.size()] / columns;
    found.dw[i % w.size()] += dy[i] * x[i] * rstd[i / w.size()];
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t row = i / w.size();
    found.dx[i] = rstd[row] * (dy[i] * w[i % w.size()] - x[i] * rstd[row] * means[row]);
  }
  return found;
}

std::int64_t first_of_document(std::span<const std::int64_t> documents, std::int64_t length, std::int64_t token) {
  std::int64_t first = token - token % length;
  for (const std::int64_t begin : documents)
    if (begin <= token) first = std::max(first, begin);
  return first;
}

Values rope_reference(Values x, std::size_t columns, std::size_t head_dim, double theta,
                      const std::function<std::int64_t(std::int64_t)>& position) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % head_dim >= head_dim / 2) continue;
    const double exponent = -2.0 * static_cast<double>(i % head_dim) / static_cast<double>(head_dim);
    const double angle =
        static_cast<double>(position(static_cast<std::int64_t>(i / columns))) * std::pow(theta, exponent);
    double &low = x[i], &high = x[i + head_dim / 2];
    const double before = low;
    low = before * std::cos(angle) - high * std::sin(angle);
    high = high * std::cos(angle) + before * std::sin(angle);
  }
  return x;
}

CrossEntropyReference cross_entropy_reference(const Values& logits, const std::vector<std::int32_t>& targets,
                                              double scale) {
  CrossEntropyReference expected{.loss = 0, .gradient = logits};
  auto row = expected.gradient.begin();
  const auto columns = static_cast<std::ptrdiff_t>(logits.size() / targets.size());
  for (const std::int32_t target : targets) {
    const auto end = row + columns;
    const double most = *std::max_element(row, end);
    double sum = 0;
    for (auto at = row; at != end; ++at) sum += std::exp(*at - most);
    if (target >= 0) expected.loss += std::log(sum) + most - row[target];
    const double factor = target >= 0 ? scale : 0;
    std::transform(row, end, row, [&](double logit) { return factor * std::exp(logit - most) / sum; });
    if (target >= 0) row[target] -= factor;
    row = end;
  }
  return expected;
}

Values product_reference(const Values& a, bool ta, const Values& b, bool tb, std::size_t m, std::size_t n,
                         std::size_t k) {
  Values c(m * n);
  for (std::size_t i = 0; i < c.size(); ++i)
    for (std::size_t l = 0; l < k; ++l)
      c[i] += a[ta ? l * m + i / n : i / n * k + l] * b[tb ? i % n * k + l : l * n + i % n];
  return c;
}

namespace {

/// Returns x, rounded to bf16 if `as_bf16` is set.
double kept(double x, bool as_bf16) {
  return as_bf16 ? static_cast<double>(static_cast<float>(bf16(static_cast<float>(x)))) : x;
}

/// Offsets and strides of the rows of one head of one sequence.
struct Head {
  std::size_t q, kv, q_stride, kv_stride, d;
  const double* row(const Values& x, bool key, std::size_t t) const {
    return x.data() + (key ? kv + t * kv_stride : q + t * q_stride);
  }
};

/// Unblocked attention in float64; query t attends to keys from first_key[t] on.
void attend(const Head& head, const std::vector<std::size_t>& first_key, const Inputs& in, Rounding rounding,
            Results& r, double* lse) {
  const bool as_bf16 = rounding != Rounding::none, stored = rounding == Rounding::stored;
  const std::size_t length = first_key.size();
  const double scale = 1 / std::sqrt(static_cast<double>(head.d));
  const auto product = [&](const double* a, const double* b) { return std::inner_product(a, a + head.d, b, 0.0); };
  const auto add = [&](double factor, const double* from, double* to) {
    for (std::size_t c = 0; c < head.d; ++c) to[c] += factor * from[c];
  };
  const auto output = [](const double* row) { return const_cast<double*>(row); };
  Values p(length), dp(length);
  for (std::size_t i = 0; i < length; ++i) {
    double sum = 0, delta = 0, most = -std::numeric_limits<double>::infinity();
    for (std::size_t j = first_key[i]; j <= i; ++j)
      most = std::max(most, p[j] = kept(scale * product(head.row(in.q, false, i), head.row(in.k, true, j)), stored));
    for (std::size_t j = first_key[i]; j <= i; ++j) sum += p[j] = std::exp(p[j] - most);
    lse[i] = most + std::log(sum);
    double* const out = output(head.row(r.out, false, i));
    for (std::size_t j = first_key[i]; j <= i; ++j) {
      p[j] /= sum;
      dp[j] = kept(product(head.row(in.dout, false, i), head.row(in.v, true, j)), stored);
      add(kept(p[j], as_bf16), head.row(in.v, true, j), out);
    }
    for (std::size_t c = 0; c < head.d; ++c) delta += (out[c] = kept(out[c], as_bf16)) * head.row(in.dout, false, i)[c];
    for (std::size_t j = first_key[i]; j <= i; ++j) {
      const double ds = kept(p[j] * (dp[j] - delta), as_bf16);
      add(kept(p[j], as_bf16), head.row(in.dout, false, i), output(head.row(r.dv, true, j)));
      add(scale * ds, head.row(in.q, false, i), output(head.row(r.dk, true, j)));
      add(scale * ds, head.row(in.k, true, j), output(head.row(r.dq, false, i)));
    }
  }
}

}  // namespace

std::size_t first_key_of(const AttentionShape& shape, std::int64_t token) {
  const std::int64_t first = first_of_document(shape.documents, shape.sequence_length, token);
  return static_cast<std::size_t>(shape.window > 0 ? std::max(first, token - shape.window + 1) : first);
}

Results attend(const AttentionShape& shape, const Inputs& in, Rounding rounding) {
  const auto length = static_cast<std::size_t>(shape.sequence_length), d = static_cast<std::size_t>(shape.head_dim);
  const auto heads = static_cast<std::size_t>(shape.heads), kv_heads = static_cast<std::size_t>(shape.kv_heads);
  Results r{.out = Values(in.q.size()),
            .lse = Values(static_cast<std::size_t>(shape.tokens()) * heads),
            .dq = Values(in.q.size()),
            .dk = Values(in.k.size()),
            .dv = Values(in.k.size())};
  for (std::size_t sequence = 0; sequence < static_cast<std::size_t>(shape.sequences); ++sequence)
    for (std::size_t h = 0; h < heads; ++h) {
      const Head head{.q = (sequence * length * heads + h) * d,
                      .kv = (sequence * length * kv_heads + h / (heads / kv_heads)) * d,
                      .q_stride = heads * d,
                      .kv_stride = kv_heads * d,
                      .d = d};
      std::vector<std::size_t> first_key;
      for (std::size_t t = 0; t < length; ++t)
        first_key.push_back(first_key_of(shape, static_cast<std::int64_t>(sequence * length + t)) - sequence * length);
      attend(head, first_key, in, rounding, r, r.lse.data() + (sequence * heads + h) * length);
    }
  for (Values* values : {&r.dq, &r.dk, &r.dv})
    for (double& value : *values) value = kept(value, rounding != Rounding::none);
  return r;
}

double relative(const Values& found, const Values& expected) {
  const auto [error, norm] = error_and_norm(found, expected);
  return error / std::max(norm, 0.1 * std::sqrt(static_cast<double>(found.size())));
}

Errors errors(const Results& found, const Results& expected) {
  return {relative(found.out, expected.out), relative(found.lse, expected.lse), relative(found.dq, expected.dq),
          relative(found.dk, expected.dk), relative(found.dv, expected.dv)};
}

std::string name(const AttentionShape& s, int threads) {
  return message(s.sequences, " x ", s.sequence_length, ", heads ", s.heads, "/", s.kv_heads, " of ", s.head_dim, ", ",
                 threads, " threads", s.documents.empty() ? "" : ", packed",
                 s.window > 0 ? message(", window ", s.window) : "");
}

}  // namespace fsdp::device::reference
