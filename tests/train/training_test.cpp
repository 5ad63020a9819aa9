// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/zip.hpp>

#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/threads.hpp>

#include <support/errors.hpp>
#include <support/stacks/llama_training.hpp>

namespace fsdp::train {
namespace {

using Comm = comm::Threads<>;
using Training = test::LlamaTraining;
constexpr std::int64_t length = 12;

/// Micro-batches of `sequences` windows that start at different tokens on each rank. Targets below `ignored` are
/// ignored.
class Data {
 public:
  Data(int rank, int micro_batches, std::int64_t sequences, std::int64_t ignored = 0) {
    const std::int64_t tokens = sequences * length;
    for (int m = 0; m < micro_batches; ++m) {
      auto& memory = memory_.emplace_back(static_cast<std::size_t>(2 * tokens));
      for (std::int64_t i = 0; i < tokens; ++i) {
        memory[i] = static_cast<std::int32_t>((i * 7 + rank * 31 + m * 3) % 200);
        memory[tokens + i] = i < ignored ? -1 : static_cast<std::int32_t>((memory[i] + 5) % 200);
      }
      batches_.push_back(
          {.tokens = {memory.data(), {tokens}}, .targets = {memory.data() + tokens, {tokens}}, .sequences = sequences});
    }
  }
  const std::vector<TokenBatch>& batches() const { return batches_; }

 private:
  std::vector<std::vector<std::int32_t>> memory_;
  std::vector<TokenBatch> batches_;
};

TEST(Training, UsesThePlannedMemoryToTheByte) {
  Comm::run(2, {}, [](Comm& communicator) {
    Training training(communicator, {.sequences = 3, .sequence_length = length, .micro_batches = 2, .threads = 1},
                      Purpose::train, tiling::RunTimeTiling::tokens(5));
    training.initialize(1);
    const Data data(communicator.rank(), 2, 3);
    for (int step = 0; step < 2; ++step) training.step(data.batches(), {.lr = 1e-3});
    training.evaluate(data.batches().front());
    EXPECT_EQ(training.peak_bytes(), training.plan().peak_bytes());
    EXPECT_EQ(training.arena_peak(), training.plan().activation_bytes);
  });
}

TEST(Training, RefusesABatchOfAnotherLength) {
  Comm::run(1, {}, [](Comm& communicator) {
    Training training(communicator, {.sequences = 2, .sequence_length = length, .micro_batches = 1, .threads = 1});
    training.initialize(1);
    const Data data(0, 1, 3);
    const auto expect_refused = [&](std::int64_t tokens, std::int64_t targets, const std::string& sentence) {
      const TokenBatch& whole = data.batches().front();
      const TokenBatch batch{
          .tokens = whole.tokens.slice(0, tokens), .targets = whole.targets.slice(0, targets), .sequences = 2};
      for (const bool trains : {true, false}) {
        const std::string said = test::input_error_of(
            [&] { (void)(trains ? training.step(batch, {.lr = 1e-3}) : training.evaluate(batch)); });
        EXPECT_TRUE(said.starts_with(sentence)) << said << "\nand not: " << sentence;
      }
    };
    for (const std::int64_t tokens : {22, 23, 26, 36})
      expect_refused(tokens, tokens,
                     message("batch: ", tokens, " tokens of 2 sequences, and passes were planned for sequences of 12"));
    expect_refused(24, 23, "batch: 24 tokens have 23 targets");
    EXPECT_THROW(training.step(data.batches().front(), {}), Error) << "of another number of sequences";
  });
}

TEST(Training, RefusesAStepWithoutALearningRate) {
  Comm::run(1, {}, [](Comm& communicator) {
    Training training(communicator, {.sequences = 1, .sequence_length = length, .micro_batches = 1, .threads = 1});
    training.initialize(1);
    EXPECT_THROW(training.step(Data(0, 1, 1).batches(), {}), InputError);
  });
}

// The logits of one row need less memory than a step. Those of many rows need more and determine the plan.
TEST(Training, PlansMemoryForRequestedLogitsToTheByte) {
  Comm::run(2, {}, [](Comm& communicator) {
    const Data data(communicator.rank(), 1, 3);
    const TokenBatch& batch = data.batches().front();
    const std::int64_t vocabulary = test::two_layers().vocab_size;
    const auto planned = [&](std::int64_t count) {
      Training training(communicator, {.sequences = 3, .sequence_length = length, .threads = 1, .logit_rows = count},
                        Purpose::train, tiling::RunTimeTiling::tokens(5));
      training.initialize(1);
      training.step(batch, {.lr = 1e-3});
      const double before = training.evaluate(batch);
      const std::vector<std::int64_t> rows(static_cast<std::size_t>(count), 7);
      std::vector<float> logits(static_cast<std::size_t>(count * vocabulary));
      for (int again = 0; again < 2 && count > 0; ++again)
        training.evaluate_logits(batch, rows, {logits.data(), {count, vocabulary}});
      EXPECT_EQ(training.evaluate(batch), before);
      EXPECT_EQ(training.bytes(), training.plan().bytes);
      EXPECT_EQ(training.arena_peak(), training.plan().activation_bytes);
      return training.plan().activation_bytes;
    };
    const std::int64_t none = planned(0);
    EXPECT_EQ(planned(1), none);
    EXPECT_GT(planned(4000), none);
  });
}

TEST(Training, LogitsMatchThoseOfGenerationWithTheSameWeights) {
  Comm::run(2, {}, [](Comm& communicator) {
    const Data data(0, 1, 3);
    const TokenBatch& batch = data.batches().front();
    const std::vector<std::int64_t> rows = {11, 30};
    const StepSize size{.sequences = 3, .sequence_length = length, .logit_rows = 2};
    const Shape shape{2, test::two_layers().vocab_size};
    std::vector<float> found(static_cast<std::size_t>(2 * test::two_layers().vocab_size)), expected(found.size());
    Training training(communicator, size);
    training.initialize(3);
    training.evaluate_logits(batch, rows, {found.data(), shape});
    Training evaluation(communicator, size, Purpose::generate);
    evaluation.initialize(3);
    evaluation.logits(batch, rows, {expected.data(), shape});
    EXPECT_EQ(found, expected);
    EXPECT_THROW(training.evaluate_logits(batch, {}, {found.data(), shape}), LogicError);
  });
}

// The mean over the targets of all ranks and micro-batches equals that of one rank with all data.
TEST(Training, LossIsTheMeanOverAllTargets) {
  const auto losses = [](int ranks) {
    std::vector<double> found;
    Comm::run(ranks, {}, [&](Comm& communicator) {
      const int micro_batches = 4 / ranks;
      Training training(communicator, {.sequences = 2, .sequence_length = length, .micro_batches = micro_batches});
      training.initialize(1);
      std::vector<TokenBatch> mine;
      std::vector<Data> all;
      for (int part = 0; part < 4; ++part) all.emplace_back(part, 1, 2, part * 3);
      for (int m = 0; m < micro_batches; ++m)
        mine.push_back(all[static_cast<std::size_t>(m * ranks + communicator.rank())].batches().front());
      for (int step = 0; step < 5; ++step) {
        const double loss = training.step(mine, {.lr = 1e-3});
        if (communicator.rank() == 0) found.push_back(loss);
      }
    });
    return found;
  };
  const std::vector<double> one = losses(1), two = losses(2), four = losses(4);
  ASSERT_TRUE(two.size() == one.size() && four.size() == one.size());
  for (const auto& [alone, of_two, of_four] : ranges::views::zip(one, two, four)) {
    EXPECT_NEAR(of_two, alone, 1e-5 * alone);
    EXPECT_NEAR(of_four, alone, 1e-5 * alone);
  }
  EXPECT_LT(one.back(), one.front());
}

TEST(Training, RefusesMicroBatchesThatWereNotPlanned) {
  Comm::run(1, {}, [](Comm& communicator) {
    const Data three(0, 1, 3), two(0, 1, 2);
    StepSize size{.sequences = 3, .sequence_length = length};
    Training exact(communicator, size);
    exact.initialize(1);
    EXPECT_THROW(exact.step(two.batches(), {.lr = 1e-3}), Error);
    size.fewer = true;
    Training at_most(communicator, size);
    at_most.initialize(1);
    EXPECT_GT(at_most.step(two.batches(), {.lr = 1e-3}), 0);
    EXPECT_EQ(exact.step(three.batches(), {.lr = 1e-3}), [&] {
      Training again(communicator, size);
      again.initialize(1);
      return again.step(three.batches(), {.lr = 1e-3});
    }());
  });
}

TEST(Training, RefusesToDigestStepsThatNothingWatches) {
  Comm::run(1, {}, [](Comm& communicator) {
    Training training(communicator, {.sequence_length = length, .digests = true});
    training.initialize(1);
    const Data data(0, 1, 1);
    test::expect_parts(test::error_of<LogicError>([&] { training.step(data.batches(), {.lr = 1e-3}); }),
                       {"nothing watches its steps; include <tessera/fsdp/verification/step_watch.hpp>",
                        "StepWatch watch(training.module(), training.executor())"});
  });
}

TEST(Training, ANonFiniteLossStopsBeforeTheWeightUpdate) {
  Comm::run(2, {}, [](Comm& communicator) {
    Training training(communicator, {.sequence_length = length});
    training.initialize(1);
    const std::span<float> weights = training.weights().front();
    weights.front() = std::numeric_limits<float>::quiet_NaN();
    training.sync_model_weights();
    const std::vector<float> before(weights.begin() + 1, weights.end());
    const Data data(communicator.rank(), 1, 1);
    EXPECT_THROW(training.step(data.batches(), {.lr = 1e-3}), Error);
    const std::vector<float> after(weights.begin() + 1, weights.end());
    EXPECT_EQ(after, before);
  });
}

TEST(Evaluation, HasTheSameLossAsTraining) {
  Comm::run(2, {}, [](Comm& communicator) {
    const StepSize size{.sequences = 2, .sequence_length = length};
    const Data data(communicator.rank(), 1, 2, 4);
    double trained = 0;
    {
      Training training(communicator, size);
      training.initialize(3);
      trained = training.step(data.batches(), {.lr = 0});
    }
    Training evaluation(communicator, size, Purpose::evaluate);
    evaluation.initialize(3);
    evaluation.counts().start([&] { return data.batches().front().counts(); });
    const auto targets = static_cast<double>(evaluation.counts().finish().valid_targets);
    const double sum = evaluation.evaluate(data.batches().front());
    EXPECT_NEAR(comm::sum_over_ranks(communicator, sum, {"test"}) / targets, trained, 1e-6 * trained);
    EXPECT_EQ(targets, 2 * (2 * length - 4));
  });
}

// No dry run had 12 tokens; the tiles are the same as in a run that was planned for 12 tokens.
TEST(Evaluation, FewerSequencesThanPlannedAreTiledToo) {
  Comm::run(2, {}, [](Comm& communicator) {
    const Data data(communicator.rank(), 1, 1);
    const auto loss = [&](std::int64_t sequences) {
      Training training(communicator, {.sequences = sequences, .sequence_length = length, .threads = 1}, Purpose::train,
                        tiling::RunTimeTiling::tokens(5));
      training.initialize(1);
      const double found = training.evaluate(data.batches().front());
      EXPECT_LE(training.arena_peak(), training.plan().activation_bytes);
      return found;
    };
    EXPECT_EQ(loss(3), loss(1));
  });
}

TEST(Evaluation, LogitsOfSelectedRowsMatchAllRowsWithinPlannedMemory) {
  Comm::run(2, {}, [](Comm& communicator) {
    const Data data(0, 1, 3);
    const TokenBatch& batch = data.batches().front();
    const std::int64_t vocabulary = test::two_layers().vocab_size;
    const auto logits = [&](std::vector<std::int64_t> rows) {
      Training evaluation(communicator, {.sequences = 3, .sequence_length = length, .logit_rows = std::ssize(rows)},
                          Purpose::generate);
      evaluation.initialize(3);
      const std::int64_t made = rows.empty() ? 3 * length : std::ssize(rows);
      std::vector<float> out(static_cast<std::size_t>(made * vocabulary));
      for (int again = 0; again < 2; ++again) evaluation.logits(batch, rows, {out.data(), {made, vocabulary}});
      EXPECT_EQ(evaluation.arena_peak(), evaluation.plan().activation_bytes);
      return out;
    };
    const std::vector<std::int64_t> rows = {11, 12, 30};
    const std::vector<float> all = logits({}), some = logits(rows);
    ASSERT_EQ(std::ssize(some), std::ssize(rows) * vocabulary);
    for (const auto& [row, logits_of_row] : ranges::views::zip(rows, ranges::views::chunk(some, vocabulary)))
      for (const auto& [own, other] :
           ranges::views::zip(logits_of_row, std::span(all).subspan(static_cast<std::size_t>(row * vocabulary))))
        EXPECT_NEAR(own, other, 1e-5);
    EXPECT_THROW(logits({3 * length}), Error);
  });
}

TEST(Evaluation, ContinuesSequencesOfDifferentLengthsWithinPlannedMemory) {
  Comm::run(2, {}, [](Comm& communicator) {
    const Data data(0, 1, 3);
    const TokenBatch& batch = data.batches().front();
    const std::int64_t vocabulary = test::two_layers().vocab_size;
    const auto evaluation = [&](std::int64_t cached_rows) {
      return std::make_unique<Training>(
          communicator,
          StepSize{.sequences = 3, .sequence_length = length, .logit_rows = 3, .cached_rows = cached_rows},
          Purpose::generate);
    };
    const auto same = evaluation(3 * length), whole = evaluation(0);
    for (const auto* each : {&same, &whole}) (*each)->initialize(3);

    std::vector<std::int32_t> at = {2, 7, 4};  // the last tokens of the prompts
    std::vector<float> found(static_cast<std::size_t>(3 * vocabulary)), expected(found.size());
    const auto rows = [&] {
      std::vector<std::int64_t> list;
      for (std::int64_t i = 0; i < 3; ++i) list.push_back(i * length + at[static_cast<std::size_t>(i)]);
      return list;
    };
    const Shape shape{3, vocabulary};
    same->logits(batch, rows(), {found.data(), shape});
    for (int token = 0; token < 4; ++token) {
      whole->logits(batch, rows(), {expected.data(), shape});
      for (const auto& [own, other] : ranges::views::zip(found, expected)) EXPECT_NEAR(own, other, 1e-5);
      std::vector<std::int32_t> next;
      for (std::int32_t& position : at) ++position;
      for (const std::int64_t row : rows()) next.push_back(batch.tokens[row]);
      const TokenBatch one{.tokens = {next.data(), {3}}, .targets = {}, .sequences = 3};
      same->next_logits(one, at, {found.data(), shape});
    }
    EXPECT_EQ(same->bytes(), same->plan().bytes);
    const auto cache = static_cast<std::size_t>(device::MemoryKind::cache);
    const std::int64_t columns = 2 * test::two_layers().kv_heads * test::two_layers().head_dim;
    EXPECT_EQ(same->plan().bytes[cache],
              test::two_layers().layers * 3 * length * columns * std::int64_t{sizeof(float)});
    EXPECT_EQ(whole->plan().bytes[cache], 0);

    const TokenBatch one{.tokens = {at.data(), {3}}, .targets = {}, .sequences = 3};
    const Tensor<float> out(found.data(), shape);
    EXPECT_THROW(whole->next_logits(one, at, out), LogicError);  // no KV cache was kept
    EXPECT_THROW(same->next_logits(one, std::vector<std::int32_t>{1, 2}, out), LogicError);
    EXPECT_THROW(same->next_logits(one, std::vector<std::int32_t>{1, 2, length}, out), LogicError);
  });
}

/// Throws before task number `at` of a pass, counted from 0; never if `at` is negative.
struct Thrower {
  int at = -1;
  int seen = 0;

  Observer observer() {
    return {.before =
                [](void* self, const sharding::Task&) {
                  auto& thrower = *static_cast<Thrower*>(self);
                  if (thrower.seen++ == thrower.at) throw std::runtime_error("thrown by a test");
                },
            .after = nullptr,
            .state = this};
  }
};

/// The weights of this rank after three steps. If `task` is not negative, an additional step is interrupted at this
/// task on all ranks.
std::vector<float> trained_past(Comm& communicator, int task, int& tasks) {
  Thrower thrower;
  Training training(communicator, {.sequence_length = length, .micro_batches = 2, .threads = 1}, Purpose::train, {},
                    thrower.observer());
  training.initialize(1);
  const Data data(communicator.rank(), 2, 1);
  training.step(data.batches(), {.lr = 1e-3});
  tasks = thrower.seen;
  if (task >= 0) {
    thrower = {.at = task};
    EXPECT_THROW(training.step(data.batches(), {.lr = 1e-3}), std::runtime_error);
    thrower = {};
  }
  for (int step = 0; step < 2; ++step) training.step(data.batches(), {.lr = 1e-3});
  EXPECT_EQ(training.peak_bytes(), training.plan().peak_bytes());
  std::vector<float> weights;
  for (const std::span<float> piece : training.weights()) weights.insert(weights.end(), piece.begin(), piece.end());
  return weights;
}

TEST(Training, ContinuesAfterAnExceptionOnAllRanksAtAnyTask) {
  for (const int ranks : {1, 2}) {
    Comm::run(ranks, {}, [&](Comm& communicator) {
      int tasks = 0, ignored = 0;
      const std::vector<float> sound = trained_past(communicator, -1, tasks);
      ASSERT_GT(tasks, 20);
      for (int task = 0; task < tasks; task += ranks == 1 ? 5 : 1)
        ASSERT_EQ(trained_past(communicator, task, ignored), sound) << "task " << task << " of " << ranks << " ranks";
    });
  }
}

TEST(Training, UninitializedWeightsAreAnError) {
  Comm::run(2, {}, [](Comm& communicator) {
    Training training(communicator, {.sequence_length = length, .threads = 1});
    const Data data(communicator.rank(), 1, 1);
    test::expect_parts(test::error_of<LogicError>([&] { training.step(data.batches(), {.lr = 1e-3}); }),
                       {"initialize, load or set them first"});
  });
}

}  // namespace
}  // namespace fsdp::train
