// SPDX-License-Identifier: Apache-2.0
// Separate from onednn.cpp, so that a program without oneDNN can link it.
#include "matmul_choice.hpp"

#include <atomic>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::device {
namespace {

// The choice. Separate atomics, since one atomic for both would need libatomic under clang.
std::atomic<Bf16Matmul> chosen_bf16 = MatmulChoice{}.bf16;
std::atomic<bool> chosen_limits = MatmulChoice{}.limits_library;
std::atomic<bool> is_used = false;

MatmulChoice chosen() { return {.bf16 = chosen_bf16, .limits_library = chosen_limits}; }

}  // namespace

void choose_matmul(const MatmulChoice& choice) {
  require<LogicError>(!is_used || choice == chosen(),
                      "choose_matmul: matmuls were computed by another choice; call it before anything is computed");
  chosen_bf16 = choice.bf16;
  chosen_limits = choice.limits_library;
}

MatmulChoice cpu::matmul_choice() {
  is_used = true;
  return chosen();
}

}  // namespace fsdp::device
