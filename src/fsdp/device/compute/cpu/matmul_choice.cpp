// SPDX-License-Identifier: Apache-2.0
// Separate from onednn.cpp, so that a program without oneDNN can link it.
#include "matmul_choice.hpp"

#include <atomic>

namespace fsdp::device {
namespace {

std::atomic<MatmulChoice>& current() {
  static std::atomic<MatmulChoice> choice;
  return choice;
}

}  // namespace

void choose_matmul(const MatmulChoice& choice) { current() = choice; }

MatmulChoice cpu::matmul_choice() { return current(); }

}  // namespace fsdp::device
