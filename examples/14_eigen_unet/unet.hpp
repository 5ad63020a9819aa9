// SPDX-License-Identifier: Apache-2.0
// A small U-Net on Eigen: forward, backward and data. It includes nothing from Tessera.
//
// A pass is any object with `forward(unit)`, `backward(unit)` and `both(unit)`. They return a use: `use.weight(i)` is a
// view with `data()`, `rank()` and `extent(axis)`; `use.gradient(i)` has such a view as `tensor`, and has `wanted()`
// and `next()`, which is zero if the next write overwrites.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <Eigen/Dense>

namespace unet {

// Units are declared in a different order than their order of use: enc1, enc2, middle, dec2, dec1, head.
enum : int { dec1, enc1, head, enc2, dec2, middle, units };

constexpr int size = 8;      // height and width of an image, in pixels
constexpr int channels = 4;  // number of channels of the largest images; the smaller ones have twice as many

template <class S>
using Matrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class S>
using Column = Eigen::Matrix<S, Eigen::Dynamic, 1>;

template <class View>
Eigen::Index rows(const View& view) {
  return view.extent(0);
}
template <class View>
Eigen::Index columns(const View& view) {
  Eigen::Index product = 1;
  for (int axis = 1; axis < view.rank(); ++axis) product *= view.extent(axis);
  return product;
}

/// Views a weight as a matrix [first extent, all others], or as a column. Weights in bfloat16 are copied to float.
/// @{
template <class View>
auto matrix(const View& view) {
  using S = std::remove_cvref_t<decltype(*view.data())>;
  if constexpr (std::is_floating_point_v<S>) {
    return Eigen::Map<const Matrix<S>>(view.data(), rows(view), columns(view));
  } else {
    Matrix<float> copy(rows(view), columns(view));
    std::transform(view.data(), view.data() + copy.size(), copy.data(), [](S x) { return static_cast<float>(x); });
    return copy;
  }
}
template <class View>
auto column(const View& view) {
  const auto values = matrix(view);
  return Column<typename std::remove_cvref_t<decltype(values)>::Scalar>(values.col(0));
}
/// @}

/// Overwrites the gradient with `values` or adds them, as the gradient requires.
template <class Gradient, class Values>
void put(const Gradient& gradient, const Values& values) {
  if (!gradient.wanted()) return;
  using S = std::remove_cvref_t<decltype(*gradient.tensor.data())>;
  Eigen::Map<Matrix<S>> sum(gradient.tensor.data(), rows(gradient.tensor), columns(gradient.tensor));
  const auto next = gradient.next();
  if (next == decltype(next){})
    sum.noalias() = values;
  else
    sum.noalias() += values;
}

template <class S>
struct Images {
  Matrix<S> x;    // [channels, count * size * size]
  int count = 0;  // number of images
  int size = 0;   // height and width of each image

  Images() = default;
  Images(Eigen::Index maps, int images, int pixels)
      : x(Matrix<S>::Zero(maps, images * pixels * pixels)), count(images), size(pixels) {}
  Images(Matrix<S> values, int images, int pixels) : x(std::move(values)), count(images), size(pixels) {}
  Eigen::Index at(int image, int row, int column) const { return (image * size + row) * size + column; }
};

/// Calls f(column in the matrix of patches, row of it within a channel, column in the image) for each pixel of each 3 x
/// 3 patch.
template <class S, class F>
void for_patches(const Images<S>& image, F f) {
  for (int n = 0; n < image.count; ++n)
    for (int y = 0; y < image.size; ++y)
      for (int x = 0; x < image.size; ++x)
        for (int dy = -1; dy <= 1; ++dy)
          for (int dx = -1; dx <= 1; ++dx)
            if (y + dy >= 0 && x + dx >= 0 && y + dy < image.size && x + dx < image.size)
              f(image.at(n, y, x), (dy + 1) * 3 + dx + 1, image.at(n, y + dy, x + dx));
}

template <class S>
Images<S> pool(const Images<S>& in, S factor) {  // sums of 2 x 2 pixels, times `factor`
  Images<S> out(in.x.rows(), in.count, in.size / 2);
  for (int n = 0; n < in.count; ++n)
    for (int y = 0; y < in.size; ++y)
      for (int x = 0; x < in.size; ++x) out.x.col(out.at(n, y / 2, x / 2)) += factor * in.x.col(in.at(n, y, x));
  return out;
}
template <class S>
Images<S> unpool(const Images<S>& in, S factor) {  // each pixel four times, times `factor`
  Images<S> out(in.x.rows(), in.count, in.size * 2);
  for (int n = 0; n < out.count; ++n)
    for (int y = 0; y < out.size; ++y)
      for (int x = 0; x < out.size; ++x) out.x.col(out.at(n, y, x)) = factor * in.x.col(in.at(n, y / 2, x / 2));
  return out;
}
template <class S>
Images<S> stacked(const Images<S>& upper, const Images<S>& lower) {
  Images<S> out(upper.x.rows() + lower.x.rows(), upper.count, upper.size);
  out.x << upper.x, lower.x;
  return out;
}

/// The saved tensors that backward of a block needs.
template <class S>
struct Kept {
  Matrix<S> patches, normal, output;
  Column<S> scale;  // 1 / standard deviation
  int count = 0, size = 0;
};

/// 3 x 3 convolution, batch norm and relu of a unit with tensors weight [out, in, 3, 3], gamma [out] and beta [out].
template <class Use, class S>
Images<S> block(const Use& use, const Images<S>& in, Kept<S>& kept) {
  kept = {.patches = Matrix<S>::Zero(in.x.rows() * 9, in.x.cols()),
          .normal = {},
          .output = {},
          .scale = {},
          .count = in.count,
          .size = in.size};
  for_patches(in, [&](auto at, int place, auto from) {
    for (Eigen::Index c = 0; c < in.x.rows(); ++c) kept.patches(c * 9 + place, at) = in.x(c, from);
  });
  Matrix<S> z = matrix(use.weight(0)) * kept.patches;
  const Column<S> mean = z.rowwise().mean();
  z.colwise() -= mean;
  kept.scale = (z.array().square().rowwise().mean() + S(1e-5)).rsqrt();
  kept.normal = kept.scale.asDiagonal() * z;
  Matrix<S> y = column(use.weight(1)).asDiagonal() * kept.normal;
  y.colwise() += column(use.weight(2));
  kept.output = y.cwiseMax(S(0));
  return {kept.output, in.count, in.size};
}
/// Returns the gradient with respect to the unit's input, from the gradient with respect to its output.
template <class Use, class S>
Images<S> block_backward(const Use& use, const Kept<S>& kept, const Matrix<S>& of_output) {
  const Matrix<S> d = (kept.output.array() > S(0)).select(of_output, S(0));
  put(use.gradient(1), (d.array() * kept.normal.array()).matrix().rowwise().sum());
  put(use.gradient(2), d.rowwise().sum());
  Matrix<S> g = column(use.weight(1)).asDiagonal() * d;
  const Column<S> mean = g.rowwise().mean(), along = (g.array() * kept.normal.array()).matrix().rowwise().mean();
  g.colwise() -= mean;
  g -= along.asDiagonal() * kept.normal;
  g = (kept.scale.asDiagonal() * g).eval();
  put(use.gradient(0), g * kept.patches.transpose());
  const Matrix<S> patches = matrix(use.weight(0)).transpose() * g;
  Images<S> of_input(patches.rows() / 9, kept.count, kept.size);
  for_patches(of_input, [&](auto at, int place, auto from) {
    for (Eigen::Index c = 0; c < of_input.x.rows(); ++c) of_input.x(c, from) += patches(c * 9 + place, at);
  });
  return of_input;
}

/// Noisy pictures of a disc, and for each pixel whether it is in the disc. Picture `first + i` of a step is the same in
/// every call.
template <class S>
struct Pictures {
  Images<S> noisy;
  Matrix<S> inside;  // [1, pixels]

  Pictures(int count, int step, int first) : noisy(1, count, size), inside(1, noisy.x.cols()) {
    for (int n = 0; n < count; ++n) {
      const std::uint32_t disc = static_cast<std::uint32_t>(step * 7919 + first + n + 1) * 2654435761u;
      const double centre_y = 2 + (disc >> 8 & 255) / 64.0, centre_x = 2 + (disc >> 16 & 255) / 64.0;
      for (int y = 0; y < size; ++y)
        for (int x = 0; x < size; ++x) {
          const bool in = std::hypot(y - centre_y, x - centre_x) < 1.5 + (disc >> 24) / 170.0;
          const std::uint32_t noise = (disc ^ static_cast<std::uint32_t>(y * 37 + x)) * 2246822519u;
          inside(0, noisy.at(n, y, x)) = in ? 1 : 0;
          noisy.x(0, noisy.at(n, y, x)) = static_cast<S>((in ? 1.0 : 0.0) + (noise >> 16 & 255) / 128.0 - 1);
        }
    }
  }
};

/// Runs forward and backward. Returns the sum of the pixels' losses; `share` is the weight of each pixel's loss in the
/// gradients.
template <class S, class Pass>
double train(Pass& pass, const Pictures<S>& data, double share) {
  constexpr S quarter = S(0.25), one = S(1);
  Kept<S> e1, e2, m, d2, d1;
  Images<S> skip1, skip2, x;
  {
    auto use = pass.forward(enc1);
    skip1 = block(use, data.noisy, e1);
  }
  {
    auto use = pass.forward(enc2);
    skip2 = block(use, pool(skip1, quarter), e2);
  }
  {
    auto use = pass.forward(middle);
    x = block(use, pool(skip2, quarter), m);
  }
  {
    auto use = pass.forward(dec2);
    x = block(use, stacked(unpool(x, one), skip2), d2);
  }
  {
    auto use = pass.forward(dec1);
    x = block(use, stacked(unpool(x, one), skip1), d1);
  }

  double loss = 0;
  Matrix<S> d;
  {
    auto use = pass.both(head);  // a linear map of the channels, and the logistic loss
    const Matrix<S> z = (matrix(use.weight(0)) * x.x).array() + column(use.weight(1))(0);
    Matrix<S> dz(1, z.cols());
    for (Eigen::Index i = 0; i < z.cols(); ++i) {
      const S inside = data.inside(0, i), p = 1 / (1 + std::exp(-z(0, i)));
      loss -= static_cast<double>(std::log(std::max(S(1e-12), inside > 0 ? p : 1 - p)));
      dz(0, i) = static_cast<S>(share) * (p - inside);
    }
    put(use.gradient(0), dz * x.x.transpose());
    put(use.gradient(1), dz.rowwise().sum());
    d = matrix(use.weight(0)).transpose() * dz;
  }

  Images<S> g;
  Matrix<S> d_skip1, d_skip2;
  const auto split = [&g](Eigen::Index upper) {  // returns the rows after the first `upper` ones, which remain in g
    const Matrix<S> lower = g.x.bottomRows(g.x.rows() - upper);
    g.x = g.x.topRows(upper).eval();
    return lower;
  };
  {
    auto use = pass.backward(dec1);
    g = block_backward(use, d1, d);
  }
  d_skip1 = split(channels);
  {
    auto use = pass.backward(dec2);
    g = block_backward(use, d2, pool(g, one).x);
  }
  d_skip2 = split(2 * channels);
  {
    auto use = pass.backward(middle);
    g = block_backward(use, m, pool(g, one).x);
  }
  d = unpool(g, quarter).x + d_skip2;
  {
    auto use = pass.backward(enc2);
    g = block_backward(use, e2, d);
  }
  d = unpool(g, quarter).x + d_skip1;
  {
    auto use = pass.backward(enc1);
    block_backward(use, e1, d);
  }
  return loss;
}

}  // namespace unet
