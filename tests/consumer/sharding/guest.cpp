// SPDX-License-Identifier: Apache-2.0
// A shared library with tessera::sharding inside, of which it shows one function.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "steps.hpp"

/// Copies the weights of consumer::weights_after to `weights`, and returns their number; 0 if it failed.
extern "C" [[gnu::visibility("default")]] std::size_t GUEST(int steps, int ranks, float* weights, std::size_t most) {
  try {
    const std::vector<float> trained = consumer::weights_after(steps, ranks);
    if (trained.size() > most) return 0;
    std::copy(trained.begin(), trained.end(), weights);
    return trained.size();
  } catch (...) {
    return 0;
  }
}
