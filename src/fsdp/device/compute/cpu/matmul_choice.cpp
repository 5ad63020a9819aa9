// SPDX-License-Identifier: Apache-2.0
// Separate from onednn.cpp, so that a program without oneDNN can link it.
#include "matmul_choice.hpp"

#include <atomic>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::device {
namespace {

/// The choice. Each member is a separate atomic, since one atomic for both would need libatomic under clang.
struct Current {
  std::atomic<Bf16Matmul> bf16 = MatmulChoice{}.bf16;
  std::atomic<bool> limits_library = MatmulChoice{}.limits_library;
  std::atomic<bool> is_used = false;
};

Current& current() {
  static Current choice;
  return choice;
}

MatmulChoice chosen() { return {.bf16 = current().bf16, .limits_library = current().limits_library}; }

}  // namespace

void choose_matmul(const MatmulChoice& choice) {
  require<LogicError>(!current().is_used || choice == chosen(),
                      "choose_matmul: matmuls were computed by another choice; call it before anything is computed");
  current().bf16 = choice.bf16;
  current().limits_library = choice.limits_library;
}

MatmulChoice cpu::matmul_choice() {
  current().is_used = true;
  return chosen();
}

}  // namespace fsdp::device
