// SPDX-License-Identifier: Apache-2.0
/// @file
/// A budget of work for reading one input, such as a chat template or a document.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::text {

/// Steps that may be spent on one input, in proportion to its size. Everything that reads the input spends from the
/// same budget, so that no sequence of its parts takes more. A step is some 10 to 100 ns, or the memory of a few dozen
/// bytes.
class Budget {
 public:
  struct Rate {
    std::size_t base = 0;      ///< steps for an input of any size
    std::size_t per_byte = 0;  ///< steps for each of its bytes
  };

  /// What takes the steps, and what to do if they are too many.
  struct Task {
    std::string name, advice;
  };

  /// `task` must outlive the budget. `bytes`: the input's size.
  Budget(const Task& task, std::size_t bytes, Rate rate)
      : task_(task), bytes_(bytes), total_(rate.base + rate.per_byte * bytes), left_(total_) {}

  /// Throws InputError if fewer steps are left.
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

/// Returns the steps of searching a text for another one, which may compare it everywhere; reading the text is not
/// among them.
inline std::size_t search_steps(std::string_view text, std::string_view what) {
  return (text.size() - std::min(text.size(), what.size())) / 64 * (what.size() / 16);
}

}  // namespace fsdp::text
