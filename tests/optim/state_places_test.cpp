// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/optimizer.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace fsdp::optim {
namespace {

TEST(StatePlaces, LeaveNoRoomForPiecesWithoutTheState) {
  // Two states, the first alone, frozen, two states, the first alone. Each piece has 64 elements but the second: 128.
  static constexpr std::array<StateSpec, 2> two = {"m", "v"};
  const std::span<const StateSpec> both = two, one = both.first(1);
  const std::vector<StatePiece> pieces{
      {0, 60, both}, {64, 128, one}, {192, 64, {}, false}, {192, 64, both}, {256, 64, one}};
  const StatePlaces first = places_of(pieces, 0, 320), second = places_of(pieces, 1, 320);
  const auto starts = [](const StatePlaces& places, const std::vector<std::size_t>& of) {
    std::vector<std::int64_t> list;
    for (const std::size_t piece : of) list.push_back(places.starts[piece]);
    return list;
  };
  EXPECT_EQ(starts(first, {0, 1, 3, 4}), (std::vector<std::int64_t>{0, 4 * 64, 4 * 192, 4 * 256}));
  EXPECT_EQ(first.bytes, 4 * 320);
  EXPECT_EQ(starts(second, {0, 3}), (std::vector<std::int64_t>{0, 4 * 64}));
  EXPECT_EQ(second.bytes, 4 * 128);
}

}  // namespace
}  // namespace fsdp::optim
