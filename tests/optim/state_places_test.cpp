// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/optimizer.hpp>

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace fsdp::optim {
namespace {

TEST(StatePlaces, LeaveNoRoomForPiecesWithoutTheState) {
  // Two states, the first alone, frozen, two states, the first alone. Each piece has 64 elements but the second: 128.
  const std::vector<StatePiece> pieces{{0, 2, true}, {64, 1, true}, {192, 0, false}, {192, 2, true}, {256, 1, true}};
  const StatePlaces first = places_of(pieces, 0, 320), second = places_of(pieces, 1, 320);
  const auto starts = [](const StatePlaces& places, const std::vector<std::size_t>& of) {
    std::vector<std::int64_t> list;
    for (const std::size_t piece : of) list.push_back(places.starts[piece]);
    return list;
  };
  EXPECT_EQ(starts(first, {0, 1, 3, 4}), (std::vector<std::int64_t>{0, 64, 192, 256}));
  EXPECT_EQ(first.elements, 320);
  EXPECT_EQ(starts(second, {0, 3}), (std::vector<std::int64_t>{0, 64}));
  EXPECT_EQ(second.elements, 128);
}

}  // namespace
}  // namespace fsdp::optim
