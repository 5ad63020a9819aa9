// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <support/temporary_folder.hpp>

#include "reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

/// Sets OpenMP's team size of the calling thread during a test, as a host program may.
class HostTeam {
 public:
  explicit HostTeam(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  HostTeam(const HostTeam&) = delete;
  HostTeam& operator=(const HostTeam&) = delete;
  ~HostTeam() { omp_set_num_threads(before_); }

 private:
  int before_;
};

/// Results of matmuls (by oneDNN, and widened to float), of attention, and of an elementwise operation.
Values computed(int threads) {
  Rank rank(threads, 16 << 20);
  const auto a = Matrix<float>::random(1, 200, 150), b = Matrix<float>::random(2, 150, 170);
  Matrix<float> c(200, 170);
  enqueue(rank.stream, Matmul<float>{.a = a.view(), .b = b.view(), .c = c});
  const auto x = Matrix<bf16>::random(3, 200, 150), y = Matrix<bf16>::random(4, 150, 170);
  Matrix<bf16> z(200, 170);
  enqueue(rank.stream, Matmul<bf16>{.a = x.view(), .b = y.view(), .c = z});
  const AttentionShape shape{.sequences = 1, .sequence_length = 300, .heads = 2, .kv_heads = 1, .head_dim = 16};
  const auto q = Matrix<float>::random(5, 300, 32), k = Matrix<float>::random(6, 300, 16);
  Matrix<float> out(300, 32), lse(2, 300);
  enqueue(rank.stream, Attention<float>{.shape = shape, .q = q, .k = k, .v = k, .out = out, .lse = lse});
  enqueue(rank.stream, Add<float>{.x = a.view(), .y = Matrix<float>::random(7, 200, 150).view()});
  Values all = c.values();
  for (const Values& more : {z.values(), out.values()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(CpuStream, IsIndependentOfTheCallersThreadTeamAndKeepsItsSize) {
  for (const int threads : {1, 2}) {
    const Values expected = [&] {
      const HostTeam host(threads);
      return computed(threads);
    }();
    for (const int team : {1, 2, 3, 5}) {
      const HostTeam host(team);
      EXPECT_EQ(computed(threads), expected) << threads << " threads, called by a team of " << team;
      EXPECT_EQ(omp_get_max_threads(), team);
    }
  }
}

TEST(CpuStream, ComputesWithinAParallelRegionOfTheCaller) {
  const Values expected = computed(1);
  constexpr int ranks = 3;
  std::vector<Values> found(ranks);
  std::vector<std::string> failures(ranks);
#pragma omp parallel for num_threads(ranks) schedule(static, 1)
  for (int rank = 0; rank < ranks; ++rank) {
    try {
      found[static_cast<std::size_t>(rank)] = computed(1);
    } catch (const std::exception& error) {
      failures[static_cast<std::size_t>(rank)] = error.what();
    }
  }
  EXPECT_EQ(failures, std::vector<std::string>(ranks));
  EXPECT_EQ(found, std::vector<Values>(ranks, expected));
}

TEST(CpuStream, KeepsItsMatmulCacheWhenMoved) {
  Ledger ledger;
  Cpu::Arena arena(ledger, 16 << 20);
  Cpu::Stream first(arena, 1);
  EXPECT_EQ(first.cache(), nullptr) << "made before the first matmul";
  const auto a = Matrix<float>::random(1, 64, 64);
  Matrix<float> c(64, 64);
  enqueue(first, Matmul<float>{.a = a.view(), .b = a.view(), .c = c.view()});
  const auto cache = first.cache();
  EXPECT_NE(cache, nullptr);
  Cpu::Stream second(std::move(first));
  EXPECT_EQ(second.cache(), cache);
}

TEST(InstructionSet, IsSelectedByName) {
  const std::string before(instruction_set());
  choose_instruction_set(before);
  EXPECT_EQ(instruction_set(), before);
  EXPECT_THROW(choose_instruction_set("sse"), InputError);
  const std::string said = test::input_error_of([] { choose_instruction_set("sse", "TESSERA_ISA"); });
  EXPECT_TRUE(said.starts_with("TESSERA_ISA is 'sse'; ")) << said;
  EXPECT_EQ(instruction_set(), before);
}

}  // namespace
}  // namespace fsdp::device
