// SPDX-License-Identifier: Apache-2.0
// Separate from onednn.cpp, so that a program without oneDNN can link it.
#include "matmul_choice.hpp"

#include <atomic>

namespace fsdp::device {
namespace {

/// The choice, each part an atomic of its own: one of both would need libatomic under clang.
struct Current {
  std::atomic<Bf16Matmul> bf16 = MatmulChoice{}.bf16;
  std::atomic<bool> limits_library = MatmulChoice{}.limits_library;
};

Current& current() {
  static Current choice;
  return choice;
}

}  // namespace

void choose_matmul(const MatmulChoice& choice) {
  current().bf16 = choice.bf16;
  current().limits_library = choice.limits_library;
}

MatmulChoice cpu::matmul_choice() { return {.bf16 = current().bf16, .limits_library = current().limits_library}; }

}  // namespace fsdp::device
