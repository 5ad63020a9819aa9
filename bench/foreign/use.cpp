// SPDX-License-Identifier: Apache-2.0
/// @file
/// `use`: the cost of a Use. Compares a chain of many small units with negligible computation with the same computation
/// in a plain loop over plain memory.
#include <algorithm>
#include <string>
#include <vector>

#include "../lines.hpp"
#include "foreign.hpp"

namespace fsdp::bench::foreign {
namespace {

constexpr std::int64_t elements = 16;  // in a unit's tensor

/// The computation of a unit: `read` reads the weight, `write` writes its gradient.
float read(const float* weight) { return *std::max_element(weight, weight + elements); }
void write(float* gradient, const float* weight) {
  for (std::int64_t i = 0; i < elements; ++i) gradient[i] = weight[i];
}

std::vector<Unit> chain(std::int64_t count) {
  std::vector<Unit> units;
  for (std::int64_t i = 0; i < count; ++i)
    units.push_back({.name = "unit" + std::to_string(i),
                     .parameters = {{.name = "w" + std::to_string(i), .shape = {elements}, .initial = Initial::ones}}});
  return units;
}

/// Runs a training pass over all units. Returns the sum of the values that were read.
float pass_over(Shards& sharded, int count) {
  float sum = 0;
  auto pass = sharded.train();
  for (int unit = 0; unit < count; ++unit) {
    const auto use = pass.forward(unit);
    sum += read(use.weight(0).data());
  }
  for (int unit = count; unit-- > 0;) {
    const auto use = pass.backward(unit);
    const auto gradient = use.gradient(0);
    if (gradient.next() == Write::overwrite) write(gradient.tensor.data(), use.weight(0).data());
  }
  pass.finish();
  return sum;
}

void measure(Comm& communicator, const Options& options) {
  const int count = static_cast<int>(options.units);
  Shards sharded(communicator, chain(count));
  sharded.initialize(1);
  const auto size = static_cast<std::size_t>(elements * count);
  std::vector<float> weights(size, 1.0f), gradients(size);
  volatile float sink = 0;
  Exchange exchange(communicator, [&] { pass_over(sharded, count); });

  Rounds rounds;
  add_short(rounds, [&] { sink = pass_over(sharded, count); });
  add_short(rounds, [&] {
    float sum = 0;
    for (int unit = 0; unit < count; ++unit) sum += read(weights.data() + unit * elements);
    for (int unit = count; unit-- > 0;) write(gradients.data() + unit * elements, weights.data() + unit * elements);
    sink = sum;
  });
  add_short(rounds, [&] { exchange.run(); });
  run_together(communicator, rounds, options.repeats_or(301));
  if (communicator.rank() != 0) return;
  const double uses = 2.0 * count;
  const bool alone = communicator.size() == 1;
  const auto of_library = [&](std::size_t r) {
    return rounds.seconds(0, r) - rounds.seconds(1, r) - (alone ? 0 : rounds.seconds(2, r));
  };
  Line("use")
      .add("ranks", std::int64_t{communicator.size()}, "units", options.units)
      .add("use_us", rounds.median_of(of_library) / uses * 1e6, "pass_us", rounds.median_seconds(0) * 1e6)
      .add("bare_us", rounds.median_seconds(1) * 1e6, "exchange_us", rounds.median_seconds(2) * 1e6)
      .print();
}

}  // namespace

void measure_use(const Options& options) {
  for (const int ranks : {1, 2}) on_ranks(ranks, [&](Comm& communicator) { measure(communicator, options); });
}

}  // namespace fsdp::bench::foreign
