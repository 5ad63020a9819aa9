// SPDX-License-Identifier: Apache-2.0
// Training on 1, 2 and 4 ranks of this program, and of two libraries that have the library inside, at the same time.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
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
  return moved && same && refused ? EXIT_SUCCESS : EXIT_FAILURE;
}
