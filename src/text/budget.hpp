// SPDX-License-Identifier: Apache-2.0
/// @file
/// A limit on the work of processing one input, such as a chat template or a document.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::text {

/// A limit on the steps spent on one input, proportional to its size. All operations on the input spend from the same
/// budget, so that no combination of its parts exceeds the limit. A step takes about 10 to 100 ns, or a few dozen bytes
/// of memory.
class Budget {
 public:
  struct Rate {
    std::size_t base = 0;      ///< steps granted regardless of the input's size
    std::size_t per_byte = 0;  ///< additional steps per byte of the input
  };

  /// For the error: the operation that spends the steps, and the advice to the user.
  struct Task {
    std::string name, advice;
  };

  /// `task` must outlive the budget. `bytes`: the input's size.
  Budget(const Task& task, std::size_t bytes, Rate rate)
      : task_(task), bytes_(bytes), total_(rate.base + rate.per_byte * bytes), left_(total_) {}

  /// Spends steps. Throws InputError if not enough are left.
  void spend(std::size_t steps) {
    if (steps > left_) [[unlikely]]
      throw InputError(
          message(task_.name, " takes more than ", total_, " steps for ", bytes_, " bytes; ", task_.advice));
    left_ -= steps;
  }
  std::size_t spent() const { return total_ - left_; }
  std::size_t left() const { return left_; }

 private:
  const Task& task_;
  std::size_t bytes_, total_, left_;
};

/// Returns the steps of searching `text` for `what` in the worst case, a comparison at every offset. Excludes the steps
/// of reading `text`.
inline std::size_t search_steps(std::string_view text, std::string_view what) {
  return (text.size() - std::min(text.size(), what.size())) / 64 * (what.size() / 16);
}

}  // namespace fsdp::text
