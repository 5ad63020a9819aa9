// SPDX-License-Identifier: Apache-2.0
#include "spending.hpp"

namespace fsdp::text::jinja {
namespace {

thread_local Spending* current = nullptr;

}  // namespace

Spending::Spending(Budget& steps, std::size_t most_bytes)
    : steps_(steps), most_bytes_(most_bytes), outer_(std::exchange(current, this)) {}

Spending::~Spending() { current = outer_; }

void spend(std::size_t steps) {
  if (current != nullptr) current->steps_.spend(steps);
}

Held::Held(std::size_t bytes) {
  if (current == nullptr) return;
  current->steps_.spend(1 + bytes / 16);
  if (bytes > current->most_bytes_ - current->bytes_)
    throw InputError(message("the template's values take more than ", current->most_bytes_, " bytes"));
  current->bytes_ += bytes;
  by_ = current;
  bytes_ = bytes;
}

}  // namespace fsdp::text::jinja
