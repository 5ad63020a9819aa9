// SPDX-License-Identifier: Apache-2.0
// Optimizer states in formats other than float: bytes that do not depend on ranks, and what is refused.
#include <tessera/fsdp/checkpoint/sharded.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <support/nets.hpp>
#include <tessera/fsdp/checkpoint/inspect.hpp>
#include <tessera/fsdp/testing/guarded.hpp>
#include <tessera/fsdp/testing/report.hpp>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::test {
namespace {

using optim::Moments;

/// Tensors whose moments are encoded (a.w of 17.5 blocks, b.w of 16.5), smaller ones, and a frozen one.
const std::vector<Unit> units = {{"a", {{.name = "a.w", .shape = {64, 70}}, {.name = "a.b", .shape = {70}}}},
                                 {"b", {{.name = "b.w", .shape = {128, 33}}, {.name = "b.f", .shape = {65, 64}}}}};

const RunTimeAny blocks{.strategy = FullyShard<>{}, .other_layout = buffer::Blocks{}},
    owned{.strategy = FullyShard<>{}, .other_layout = buffer::Owned{}}, flat{.strategy = FullyShard<>{}};

std::vector<RunTimeAny> strategies() {
  std::vector<RunTimeAny> list{blocks, owned, {.strategy = Replicated{}}};
  list.push_back({.strategy = Zero1{}, .other_layout = buffer::Blocks{}});
  list.push_back({.strategy = Zero2{}, .other_layout = buffer::Blocks{}});
  list.push_back({.strategy = Zero3{}, .other_layout = buffer::Blocks{}});
  RunTimeAny mixed = blocks;
  mixed.units = {part_of(on("b", RunTimeAny{.strategy = Replicated{}}))};
  list.push_back(mixed);
  return list;
}

/// Makes steps whose gradients do not depend on ranks: rank 0 adds all of them.
template <class SharedT>
void step_until(SharedT& sharded, std::int64_t last) {
  while (sharded.optimizer().steps() < last) {
    const auto seed = static_cast<std::uint64_t>(sharded.optimizer().steps());
    auto pass = sharded.train();
    for (const int unit : {0, 1}) const auto use = pass.forward(unit);
    for (const int unit : {1, 0}) {
      auto use = pass.backward(unit);
      for (std::size_t i = 0; i < 2; ++i) {
        const Tensor<float> gradient = use.zeroed(i);
        if (sharded.module().communicator().rank() != 0 || gradient.data() == nullptr) continue;
        for (std::int64_t j = 0; j < gradient.numel(); ++j)
          gradient.data()[j] = static_cast<float>(testing::number_at(seed, j) * (j % 97 == 0 ? 100 : 1));
      }
    }
    pass.finish();
    sharded.step(0, {.lr = 1e-2});
  }
}

template <class Strategy>
std::unique_ptr<Net<Strategy>> network(Comm& communicator, const Strategy& strategy, Moments moments,
                                       std::vector<std::string> frozen = {"b.f"}) {
  return std::make_unique<Net<Strategy>>(
      communicator, units, strategy,
      typename Net<Strategy>::Settings{.optimizer = {optim::AdamW{.moments = moments}},
                                       .unit_options = {.frozen = std::move(frozen)}});
}

/// Begins, or resumes from `from`, steps until `last` and saves. Returns the path of optimizer.safetensors.
template <class Strategy>
std::string content_after(int ranks, const Strategy& strategy, Moments moments, std::int64_t last,
                          const std::filesystem::path& from, const char* file = "optimizer.safetensors") {
  return of_first_rank(ranks, [&](Comm& communicator) {
    static TemporaryFolder folder;
    const auto sharded = network(communicator, strategy, moments);
    if (from.empty())
      sharded->initialize(1);
    else
      checkpoint::restore(*sharded, from);
    step_until(*sharded, last);
    if (from.empty() || last > 3) {  // a step has been made
      EXPECT_EQ(sharded->held(), sharded->planned());
    }
    return content_of(checkpoint::save(*sharded, folder.path()) / file);
  });
}

template <class Strategy>
void expect_resumes(int ranks, const Strategy& strategy, Moments moments, const std::filesystem::path& from,
                    const std::vector<std::string>& expected) {
  EXPECT_EQ(content_after(ranks, strategy, moments, 3, {}), expected[0]) << "states depend on ranks";
  EXPECT_EQ(content_after(ranks, strategy, moments, 3, from), expected[0]) << "a resume changes states";
  EXPECT_EQ(content_after(ranks, strategy, moments, 5, from), expected[1]);
  EXPECT_EQ(content_after(ranks, strategy, moments, 5, from, "model.safetensors"), expected[2]);
}

/// Equal files after three steps on P ranks, and equal results on Q ranks from one of them, are all P x Q resumes.
TEST(CodedStates, ResumeOnAnyRanksUnderAnyStrategyWithTheSameBits) {
  for (const Moments moments : {Moments::bf16, Moments::dynamic8}) {
    const TemporaryFolder folder;
    on_ranks(1, [&](Comm& communicator) {
      const auto sharded = network(communicator, blocks, moments);
      sharded->initialize(1);
      step_until(*sharded, 3);
      checkpoint::save(*sharded, folder.path());
    });
    const std::vector<std::string> expected = {content_of(folder.path() / "step-00000003/optimizer.safetensors"),
                                               content_after(1, blocks, moments, 5, {}),
                                               content_after(1, blocks, moments, 5, {}, "model.safetensors")};
    for (const int ranks : {1, 2, 3, 4}) {
      for (const RunTimeAny& strategy : strategies()) {
        SCOPED_TRACE(message(ranks, " ranks, ", policy_text(strategy)));
        expect_resumes(ranks, strategy, moments, folder.path(), expected);
      }
      if (ranks % 2 == 0)
        expect_resumes(ranks, RunTimeAny{HybridShard<RunTimeSharded>{.group = 2}, buffer::Blocks{}}, moments,
                       folder.path(), expected);
      SCOPED_TRACE(message(ranks, " ranks, offloaded"));
      expect_resumes(ranks, Offload<RunTimeAny>{blocks}, moments, folder.path(), expected);
    }
    if (moments == Moments::bf16) {
      EXPECT_EQ(content_after(3, flat, moments, 5, folder.path()), expected[1]);
    }
  }
}

TEST(CodedStates, AreStoredByFormat) {
  const TemporaryFolder folder;
  on_ranks(1, [&](Comm& communicator) {
    const auto sharded = network(communicator, blocks, Moments::dynamic8);
    sharded->initialize(1);
    step_until(*sharded, 2);
    checkpoint::save(*sharded, folder.path());
  });
  const std::filesystem::path path = folder.path() / "step-00000002/optimizer.safetensors";
  const checkpoint::SafetensorsFile file(path);
  const checkpoint::TensorInfo &first = file.at("a.w.exp_avg"), &small = file.at("a.b.exp_avg_sq");
  EXPECT_EQ(checkpoint::codec_of(file, first), "dynamic8/256");
  EXPECT_EQ(checkpoint::codec_of(file, file.at("b.w.exp_avg_sq")), "dynamic8u/256");
  EXPECT_EQ(first.shape, (std::vector<std::int64_t>{17 * 260 + 132}));
  EXPECT_EQ(checkpoint::codec_of(file, small), "float");
  EXPECT_EQ(small.shape, (std::vector<std::int64_t>{70}));
  EXPECT_EQ(file.find("b.f.exp_avg"), nullptr) << "a state of a frozen tensor";
}

TEST(CodedStates, OtherFormatsAndLayoutsThatCutBlocksAreRefused) {
  for (const Moments saved : {Moments::float32, Moments::dynamic8}) {
    const TemporaryFolder folder;
    on_ranks(2, [&](Comm& communicator) {
      const auto sharded = network(communicator, blocks, saved);
      sharded->initialize(1);
      step_until(*sharded, 1);
      checkpoint::save(*sharded, folder.path());
      const bool coded = saved == Moments::dynamic8;
      const auto other = network(communicator, blocks, coded ? Moments::float32 : Moments::bf16);
      expect_parts(input_error_of([&] { checkpoint::restore(*other, folder.path()); }),
                   {coded ? "has the state \"a.w.exp_avg\" as dynamic8/256, and this run's is float; resume"
                          : "has the state \"a.w.exp_avg\" as float, and this run's is bf16; resume",
                    coded ? "(--moments dynamic8)" : "(--moments float)", "--model "});
    });
  }
  on_ranks(3, [&](Comm& communicator) {
    expect_parts(input_error_of([&] { network(communicator, flat, Moments::dynamic8); }),
                 {"the optimizer adamw works on blocks of 256 elements, and the strategy cuts inside of one of \"a.w\"",
                  "--layout owned or blocks"});
    EXPECT_NO_THROW(network(communicator, flat, Moments::bf16));
  });
}

TEST(CodedStates, OfAThawedParameterBeginAtZero) {
  const TemporaryFolder folder;
  on_ranks(2, [&](Comm& communicator) {
    const auto frozen = network(communicator, blocks, Moments::dynamic8);
    frozen->initialize(1);
    step_until(*frozen, 2);
    checkpoint::save(*frozen, folder.path());
    const auto thawed = network(communicator, owned, Moments::dynamic8, {"a.b"});
    checkpoint::restore(*thawed, folder.path());
    with_full_states(thawed->module(), thawed->optimizer(), {"*"},
                     [](const Parameter& parameter, std::string_view, Tensor<const float> values) {
                       const auto zeros = std::count(values.data(), values.data() + values.numel(), 0.0f);
                       EXPECT_EQ(zeros == values.numel(), parameter.name == "b.f") << parameter.name;
                     });
  });
}

TEST(CodedStates, WholeStatesCanBeReadAndWritten) {
  on_ranks(3, [&](Comm& communicator) {
    const auto sharded = network(communicator, blocks, Moments::dynamic8);
    sharded->initialize(1);
    step_until(*sharded, 2);
    const auto with = [&](auto f, auto access, int source = every_rank) {
      optim::with_full_states(sharded->module(), sharded->optimizer(), {"a.*"}, f, access, source);
    };
    const auto read = [&] {
      Whole all;
      with(
          [&](const Parameter& parameter, std::string_view state, Tensor<const float> values) {
            all[message(parameter.name, " ", state)] = {values.data(), values.data() + values.numel()};
          },
          Access::read);
      return all;
    };
    Whole before = read();
    with([](const Parameter&, std::string_view, Tensor<float>) {}, Access::write);
    EXPECT_EQ(read(), before) << "nothing was written";
    with([](const Parameter&, std::string_view, Tensor<float> values) { values.data()[0] *= 2; }, Access::write);
    for (Whole first_blocks = std::exchange(before, read()); auto& [name, values] : first_blocks) {
      std::copy_n(before.at(name).begin(), std::min<std::size_t>(256, values.size()), values.begin());
      EXPECT_EQ(values, before.at(name)) << "of " << name << " another block than the first has changed";
    }
    // A multiple by a power of two has the same codes.
    const auto twice = [&](int rank) {
      return [&, rank](const Parameter&, std::string_view, Tensor<float> values) {
        if (rank < 0 || communicator.rank() == rank)
          for (std::int64_t i = 0; i < values.numel(); ++i) values.data()[i] *= 2;
      };
    };
    with(twice(-1), Access::write);
    with(twice(1), Access::write, 1);
    Whole after = read();
    EXPECT_EQ(after.size(), 4u);
    for (auto& [name, values] : after) {
      const double largest = *std::ranges::max_element(before.at(name));
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(values[i] / 4, before.at(name)[i], 0.015 * largest) << name << " " << i;
    }
    expect_parts(input_error_of([&] { with(twice(1), Access::write); }),
                 {"with_full_states: rank 1 wrote other values"});
  });
}

}  // namespace
}  // namespace fsdp::test
