// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/optimizer.hpp>

#include <array>
#include <cstddef>
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

/// Two pieces in blocks of 256 (the second with a last block of 3 elements), one in bf16 and one in float, with
/// padding.
TEST(StatePlaces, CountTheBytesOfFormats) {
  static constexpr std::array<StateSpec, 3> states = {StateSpec("m", state_format<Dynamic8<256>>),
                                                      StateSpec("m", state_format<Plain<bf16>>), StateSpec("m")};
  const std::span<const StateSpec> coded{&states[0], 1}, half{&states[1], 1}, plain{&states[2], 1};
  const std::vector<StatePiece> pieces{{0, 512, coded}, {512, 259, coded}, {771, 7, half}, {778, 10, plain}};
  const StatePlaces places = places_of(pieces, 0, 832);
  EXPECT_EQ(places.starts, (std::vector<std::int64_t>{0, 520, 520 + 268, 520 + 268 + 16}));
  EXPECT_EQ(places.bytes, 520 + 268 + 16 + 4 * 54);
}

TEST(State, IsAViewOfItsFormat) {
  std::array<float, 130> memory{};
  const State state(reinterpret_cast<std::byte*>(memory.data()), {2, 256}, state_format<Dynamic8<256>>);
  EXPECT_EQ(state.bytes().numel(), 520);
  EXPECT_EQ(state.part(256, {256}).bytes().data(), state.bytes().data() + 260);
  EXPECT_THROW(state.as<float>(), LogicError);
  EXPECT_THROW(state.as<bf16>(), LogicError);
  EXPECT_EQ(Tensor<float>(State(Tensor<float>(memory.data(), {2, 65}))).shape(), (Shape{2, 65}));
  EXPECT_NE(state_format<Dynamic8<256>>, (state_format<Dynamic8<256, true>>));
  EXPECT_EQ(decoded(state.format(), state.bytes(), 512), std::vector<float>(512)) << "zero bytes are zeros";
}

}  // namespace
}  // namespace fsdp::optim
