// SPDX-License-Identifier: Apache-2.0
#include "networks.hpp"

#include <cmath>
#include <cstdint>

#include <examples/14_eigen_unet/units.hpp>

namespace fsdp::foreign {
namespace {

using unet::column;
using unet::matrix;
using unet::Matrix;
using unet::put;

template <class S, class Pass>
double compute_unet(Pass& pass, int step, int piece, int pieces) {
  const double share = 1.0 / (pieces * unet::size * unet::size);
  return unet::train(pass, unet::Pictures<S>(1, step, piece), share) * share;
}

constexpr Eigen::Index words = 7, width = 5, sequences = 3, rounds = 4;

/// Token number `at` of a sequence.
Eigen::Index word(int step, int piece, Eigen::Index sequence, Eigen::Index at) {
  const auto start = static_cast<std::uint32_t>(step * 4099 + piece * 31 + sequence) * 2654435761u >> 20;
  return static_cast<Eigen::Index>(start + 3 * static_cast<std::uint32_t>(at)) % words;
}

template <class S, class Pass>
double compute_tied(Pass& pass, int step, int piece, int pieces) {
  std::vector<Matrix<S>> states, cells, read;  // states before each round, outputs of the cell, and the reader's tanh
  Matrix<S> h(sequences, width), looked_up;
  {
    const auto use = pass.forward(Tied::table);
    for (Eigen::Index i = 0; i < sequences; ++i) h.row(i) = matrix(use.weight(0)).row(word(step, piece, i, 0));
    looked_up = h;
  }
  {
    const auto use = pass.forward(Tied::scale);
    h = (looked_up * column(use.weight(0)).asDiagonal()).eval();
  }
  for (Eigen::Index round = 0; round < rounds; ++round) {
    states.push_back(h);
    {
      const auto use = pass.forward(Tied::cell);
      Matrix<S> z = h * matrix(use.weight(0)).transpose();
      z.rowwise() += column(use.weight(1)).transpose();
      h = z.array().tanh();
    }
    cells.push_back(h);
    const auto use = pass.forward(Tied::reader);
    read.push_back((h * matrix(use.weight(0)).transpose()).array().tanh());
    h += S(0.5) * read.back();
  }

  const S share = S(1) / static_cast<S>(sequences * pieces);
  double loss = 0;
  Matrix<S> d;
  {
    const auto use = pass.both(Tied::scores);
    Matrix<S> z = h * matrix(use.weight(0)).transpose();
    z.rowwise() += column(use.weight(1)).transpose();
    for (Eigen::Index i = 0; i < sequences; ++i) {
      const Eigen::Index target = word(step, piece, i, 1);
      const Matrix<S> p = z.row(i).array().exp() / z.row(i).array().exp().sum();
      loss -= static_cast<double>(share * std::log(p(0, target)));
      z.row(i) = share * p;
      z(i, target) -= share;
    }
    put(use.gradient(0), z.transpose() * h);
    put(use.gradient(1), z.colwise().sum().transpose());
    d = z * matrix(use.weight(0));
  }
  for (Eigen::Index round = rounds; round-- > 0;) {
    const auto at = static_cast<std::size_t>(round);
    {
      const auto use = pass.backward(Tied::reader);
      const Matrix<S> dz = (S(0.5) * d).array() * (1 - read[at].array().square());
      put(use.gradient(0), dz.transpose() * cells[at]);
      d += dz * matrix(use.weight(0));
    }
    const auto use = pass.backward(Tied::cell);
    const Matrix<S> dz = d.array() * (1 - cells[at].array().square());
    put(use.gradient(0), dz.transpose() * states[at]);
    put(use.gradient(1), dz.colwise().sum().transpose());
    d = dz * matrix(use.weight(0));
  }
  {
    const auto use = pass.backward(Tied::scale);
    put(use.gradient(0), (d.array() * looked_up.array()).matrix().colwise().sum().transpose());
    d = (d * column(use.weight(0)).asDiagonal()).eval();
  }
  const auto use = pass.backward(Tied::table);
  Matrix<S> of_table = Matrix<S>::Zero(words, width);
  for (Eigen::Index i = 0; i < sequences; ++i) of_table.row(word(step, piece, i, 0)) += d.row(i);
  put(use.gradient(0), of_table);
  return loss;
}

}  // namespace

Network unet_network() {
  return {.name = "unet",
          .units = unet::sharded_units(),
          .order = unet::order(),
          .compute = compute_unet<float, AnyPass>,
          .compute_in_double = compute_unet<double, plain::Loop<double>::Pass>};
}

Network tied_network() {
  const Parameter shared{.name = "table", .shape = {words, width}, .initial = Initial::normal(0.5)};
  std::vector<Unit> units(6);
  units[Tied::reader] = {.name = "reader",
                         .parameters = {{.name = "reader", .shape = {width, width}, .initial = Initial::normal(0.4)}}};
  units[Tied::cell] = {.name = "cell",
                       .parameters = {{.name = "cell.w", .shape = {width, width}, .initial = Initial::normal(0.4)},
                                      {.name = "cell.b", .shape = {width}, .initial = Initial::normal(0.1)}}};
  units[Tied::table] = {.name = "table", .parameters = {shared}, .backward_needs_weights = false};
  units[Tied::scores] = {.name = "scores",
                         .parameters = {shared, {.name = "bias", .shape = {words}, .initial = Initial::zeros}}};
  units[Tied::scale] = {.name = "scale",
                        .parameters = {{.name = "scale", .shape = {width}, .initial = Initial::normal(1)}}};
  units[Tied::unused] = {.name = "unused",
                         .parameters = {{.name = "unused", .shape = {9, 3}, .initial = Initial::normal(1)}},
                         .gathered = false};
  std::vector<int> uses{Tied::table, Tied::scale};
  for (Eigen::Index round = 0; round < rounds; ++round) {
    uses.push_back(Tied::cell);
    uses.push_back(Tied::reader);
  }
  return {.name = "tied",
          .units = std::move(units),
          .order = mirrored(uses, Tied::scores),
          .unit_options = {.frozen = {"scale"}},
          .compute = compute_tied<float, AnyPass>,
          .compute_in_double = compute_tied<double, plain::Loop<double>::Pass>};
}

std::vector<Network> networks() { return {unet_network(), tied_network()}; }

}  // namespace fsdp::foreign
