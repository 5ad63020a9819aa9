// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranges of numbers that a user may choose from, and the error for a number outside.
#pragma once

#include <limits>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {

/// The numbers that a flag accepts: from `least` to `most`, both inclusive unless `above` or `below` is set.
template <class T>
struct Range {
  T least = std::numeric_limits<T>::lowest();  ///< smallest value
  T most = std::numeric_limits<T>::max();      ///< largest value
  bool above = false;                          ///< excludes `least`
  bool below = false;                          ///< excludes `most`

  /// Returns whether the range contains a value.
  bool holds(T value) const {
    return (above ? value > least : value >= least) && (below ? value < most : value <= most);
  }
  std::string text() const {
    const std::string low = message(above ? "above " : "at least ", least);
    return most == std::numeric_limits<T>::max() ? low : message(low, " and ", below ? "below " : "at most ", most);
  }
};

/// Throws InputError with the flag, the value and the range if the range does not contain the value.
template <class T>
void require_in_range(std::string_view flag, T value, const Range<T>& range) {
  require<InputError>(range.holds(value), "--", flag, " ", value, " must be ", range.text());
}

}  // namespace fsdp
