// SPDX-License-Identifier: Apache-2.0
#include <tessera/tiling/policies.hpp>

namespace fsdp::tiling {

RunTimeTiling RunTimeTiling::tiles(std::int64_t count) {
  require<InputError>(count > 0, "tiling: tiles:", count, " has no tile; give a count of at least 1");
  return RunTimeTiling(Kind::tiles, count);
}

RunTimeTiling RunTimeTiling::tokens(std::int64_t per_tile) {
  require<InputError>(per_tile > 0, "tiling: tokens:", per_tile, " has no token; give a length of at least 1");
  return RunTimeTiling(Kind::tokens, per_tile);
}

RunTimeTiling RunTimeTiling::budget(std::int64_t bytes) {
  require<InputError>(bytes > 0, "tiling: budget:", bytes, " holds nothing; give at least 1 byte");
  return RunTimeTiling(Kind::budget, bytes);
}

std::string RunTimeTiling::text() const {
  switch (kind_) {
    case Kind::tiles: return message("tiles:", number_);
    case Kind::tokens: return message("tokens:", number_);
    case Kind::budget: return number_ > 0 ? message("budget:", number_) : "budget:auto";
    case Kind::off: break;
  }
  return Untiled::text();
}

TilePlan RunTimeTiling::plan(const Problem& problem) const {
  switch (kind_) {
    case Kind::tiles: return cut_into(problem, number_);
    case Kind::tokens: return cut(problem, number_);
    case Kind::budget: return plan_within(problem, number_);
    case Kind::off: break;
  }
  return Untiled{}.plan(problem);
}

}  // namespace fsdp::tiling
