// SPDX-License-Identifier: Apache-2.0
// Trains on 1, 2 and 4 ranks in this program and, at the same time, in two shared libraries that contain
// tessera::sharding.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <sanitizer/asan_interface.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharded.hpp>
#include <tessera/fsdp/version.hpp>

#include "steps.hpp"

extern "C" std::size_t guest_1(int steps, int ranks, float* weights, std::size_t most);
extern "C" std::size_t guest_2(int steps, int ranks, float* weights, std::size_t most);

namespace {

using Guest = std::size_t (*)(int, int, float*, std::size_t);

std::vector<float> trained_by(Guest guest, int ranks) {
  std::vector<float> weights(100000);
  weights.resize(guest(5, ranks, weights.data(), weights.size()));
  return weights;
}

/// Two steps of a unit whose loss is the sum of its weights: all weights decrease equally, on any number of ranks. A
/// program with AddressSanitizer detects views that outlive their Use, and a program with -ffast-math detects a
/// learning rate of NaN, although the library is built without either.
bool unit_falls(int ranks) {
  using Sharded = fsdp::Sharded<fsdp::Stack<fsdp::FullyShard<>, fsdp::comm::Threads<>, fsdp::Fp32>>;
  std::atomic<bool> falls = true;
  const int status = fsdp::comm::Threads<>::run(ranks, {}, [&](fsdp::comm::Threads<>& communicator) {
    Sharded sharded(communicator, {{"unit", {{.name = "w", .shape = {5, 3}, .initial = fsdp::Initial::ones}}}});
    sharded.initialize(1);
    for (int step = 0; step < 2; ++step) {
      double loss = 0;
      const float *left_weight = nullptr, *left_gradient = nullptr;
      auto pass = sharded.train();
      {
        const auto use = pass.forward(0);
        const auto w = use.weight("w");
        left_weight = w.data();
        for (std::int64_t i = 0; i < w.numel(); ++i) loss += static_cast<double>(w.data()[i]);
      }
      {
        const auto use = pass.backward(0);
        const auto gradient = use.gradient("w");
        gradient.next();  // the gradient was not written before
        std::fill_n(gradient.tensor.data(), gradient.tensor.numel(), 1.0f);
        left_gradient = gradient.tensor.data();
        falls = falls && __asan_address_is_poisoned(left_gradient) == 0;
      }
      pass.finish();
      if (ranks > 1)
        falls = falls && __asan_address_is_poisoned(left_weight) == 1 && __asan_address_is_poisoned(left_gradient) == 1;
      try {
        sharded.step(loss / ranks, {});
        falls = false;
      } catch (const fsdp::InputError&) {  // the learning rate is missing
      }
      const double mean = sharded.step(loss / ranks, {.lr = 0.125}).loss;
      if (communicator.rank() == 0) falls = falls && (step == 0 ? mean == 15 : mean < 14 && mean > 12);
    }
    return 0;
  });
  return status == 0 && falls;
}

}  // namespace

int main() {
  const std::vector<float> one = consumer::weights_after(5, 1);
  std::vector<float> of_1, of_2;
  std::thread first([&] { of_1 = trained_by(guest_1, 2); }), second([&] { of_2 = trained_by(guest_2, 4); });
  first.join();
  second.join();
  const bool moved = one.size() == 300 * 70 + 7 && one.front() < 1.0f;
  const bool same = of_1 == one && of_2 == one && consumer::weights_after(5, 2) == one;

  bool refused = false;
  try {
    consumer::Rank without_threads(0);
  } catch (const fsdp::InputError&) {
    refused = true;
  }
  std::printf("tessera %s, %s: the first of %d weights is %g\n", fsdp::version_string.data(),
              fsdp::device::instruction_set().data(), static_cast<int>(one.size()),
              static_cast<double>(one.empty() ? 0.0f : one.front()));
  return moved && same && refused && unit_falls(1) && unit_falls(3) ? EXIT_SUCCESS : EXIT_FAILURE;
}
