// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of a model: it learns; results agree under every kind of strategy and tiling; gradients are the
/// derivatives of its loss; its memory is as planned, whatever its batches contain; a checkpoint contains its full
/// state.
///
///     struct MyModel {
///       template <class Stack>
///       using Model = mine::Model<Stack>;
///       static mine::Config config() { return {.layers = 2, .hidden = 12}; }  // small: it is trained some 20 times
///       static fsdp::train::StepSize size() { return {.sequences = 2, .sequence_length = 11, .micro_batches = 2}; }
///       struct Data {  // of one rank: something to learn
///         Data(int rank, const mine::Config& config);
///         std::vector<mine::Batch> batches;  // micro_batches of them
///       };
///     };
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, ModelSuite, MyModel);
///
/// Optional members: `static constexpr double learns_to`, the largest fraction of the initial loss that may remain
/// after 30 steps (default 0.7); `static std::vector<tiling::RunTimeTiling> tilings()`, tested in addition to the
/// default tilings; `static std::filesystem::path golden()`, a folder with the model's config.json and
/// model.safetensors, and with expected.safetensors, which another program computed in float64. It contains `loss`, the
/// mean over the targets of the batches of one rank, and its gradients as `grad.NAME`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/checkpoint/safetensors.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/model_files/load.hpp>
#include <tessera/fsdp/models/model.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/testing/model_loads.hpp>
#include <tessera/fsdp/testing/model_runs.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/results.hpp>

namespace fsdp::testing {

template <class Tested, class Sharding>
using TestedModel = typename Tested::template Model<ModelStack<Sharding>>;

/// Returns a task for a suite's parameter.
template <class Tested, class Sharding>
ModelTask<TestedModel<Tested, Sharding>, typename Tested::Data> task_of(const Sharding& sharding,
                                                                        const tiling::RunTimeTiling& tiling = {},
                                                                        const UnitOptions& units = {}) {
  return {.config = Tested::config(), .size = Tested::size(), .sharding = sharding, .tiling = tiling, .units = units};
}

namespace detail {

FSDP_HAS_MEMBER(learns_to)
FSDP_HAS_MEMBER(tilings)
FSDP_HAS_MEMBER(golden)

std::string words_of(int ranks, const auto& task) {
  return message(ranks, ranks == 1 ? " rank, " : " ranks, ", policy_text(task.sharding), ", tiling ",
                 task.tiling.text(), task.units.recompute ? ", blocks recomputed" : "");
}

/// Trains the model. An error of the run is a failure, and nullopt is returned.
std::optional<RunResult> trained(std::string_view asked, int ranks, const auto& task, const ModelRunOptions& options) {
  return result_of(asked, words_of(ranks, task), [&] { return train_model(ranks, task, options); });
}

inline RunTimeAny fsdp2() { return {FullyShard<>{}}; }
inline RunTimeAny replicated() { return {Replicated{}}; }
inline RunTimeAny hybrid() { return {HybridShard<RunTimeSharded>{.group = 2, .inner = {FullyShard<>{}}}}; }

}  // namespace detail

inline constexpr std::string_view model_ends_without_error = "a model trains without an error";

/// Checks that every parameter has a unique name.
template <class Tested>
void check_model_listing() {
  using Model = TestedModel<Tested, RunTimeAny>;
  static_assert(fsdp::check_model<Model>());
  constexpr std::string_view asked = "every parameter has a name of its own, as checkpoints hold it";
  constexpr std::string_view where = "the model's list";
  std::set<std::string> names;
  report_errors(model_ends_without_error, where, [&] {
    for (const auto& parameter : parameter_list(Model(Tested::config())))
      if (!names.insert(parameter.name).second) fail(asked, where, "two are called ", parameter.name);
  });
}

/// Checks that the loss falls to `learns_to` times the initial loss within 30 steps.
template <class Tested>
void check_model_learns() {
  double part = 0.7;
  if constexpr (detail::has_learns_to<Tested>()) part = Tested::learns_to;
  const std::string asked = message("the loss on the same batches falls to ", part, " of the first in 30 steps");
  const auto task = task_of<Tested>(detail::fsdp2());
  const auto found = detail::trained(asked, 2, task, {.steps = 30});
  if (found && !(found->losses.back() < part * found->losses.front()))
    fail(asked, detail::words_of(2, task), "losses from ", in_words(found->losses.front()), " to ",
         in_words(found->losses.back()));
}

/// Checks that tilings, and strategies on one and on two axes, give the same losses.
template <class Tested>
void check_model_strategies() {
  constexpr std::string_view equal = "ranks that add in the same order have the same losses, to the bit";
  constexpr std::string_view near =
      "a strategy or a tiling that adds in another order has the losses of fsdp2, within 1e-5";
  const auto fsdp2 = detail::fsdp2();
  const auto follow = [&](int ranks, int steps, const RunResult& expected, const auto& task) {
    const auto found = detail::trained(near, ranks, task, {.steps = steps});
    if (found) expect_losses_near(near, detail::words_of(ranks, task), found->losses, expected.losses);
  };
  const auto same = [&](const RunResult& expected, const auto& task) {
    const auto found = detail::trained(equal, 2, task, {});
    if (found)
      expect_values(equal, detail::words_of(2, task), "the losses of the steps", found->losses, expected.losses);
  };
  using tiling::RunTimeTiling;
  if (const auto first = detail::trained(equal, 2, task_of<Tested>(fsdp2), {})) {
    same(*first, task_of<Tested>(RunTimeAny{Zero3{}}));
    same(*first, task_of<Tested>(fsdp2, {}, {.recompute = true}));
    follow(2, 8, *first, task_of<Tested>(detail::replicated()));
    follow(2, 8, *first, task_of<Tested>(fsdp2, RunTimeTiling::tokens(5)));
    follow(2, 8, *first, task_of<Tested>(detail::replicated(), RunTimeTiling::tiles(3)));
    if constexpr (detail::has_tilings<Tested>())
      for (const RunTimeTiling& tiling : Tested::tilings())
        follow(2, 8, *first, task_of<Tested>(RunTimeAny{Zero3{}}, tiling));
  }
  if (const auto first = detail::trained(near, 4, task_of<Tested>(fsdp2), {.steps = 4})) {
    follow(4, 4, *first, task_of<Tested>(detail::hybrid()));
    follow(4, 4, *first, task_of<Tested>(detail::hybrid(), RunTimeTiling::tokens(5)));
    follow(4, 4, *first, task_of<Tested>(detail::replicated()));
  }
}

/// Checks gradients against central differences of the loss.
template <class Tested>
void check_model_gradients() {
  const auto check = [](int ranks, const auto& task) {
    const std::string where = detail::words_of(ranks, task);
    report_errors(model_ends_without_error, where, [&] { check_model_gradients(where, ranks, task); });
  };
  check(2, task_of<Tested>(detail::fsdp2()));
  check(1, task_of<Tested>(RunTimeAny{Zero3{}}, tiling::RunTimeTiling::tokens(5)));
}

/// Checks that every rank uses the planned bytes.
template <class Tested>
void check_model_bytes() {
  const auto check = [](int ranks, const auto& task) {
    const auto found = detail::trained(takes_planned_bytes, ranks, task, {.steps = 2, .noise = true});
    if (found) expect_planned_bytes(detail::words_of(ranks, task), *found);
  };
  check(1, task_of<Tested>(detail::replicated()));
  check(3, task_of<Tested>(detail::fsdp2()));
  check(2, task_of<Tested>(detail::fsdp2(), tiling::RunTimeTiling::tokens(5), {.recompute = true}));
  check(4, task_of<Tested>(detail::hybrid()));
}

/// Checks that the plan of a step's memory covers all kinds of batches: with noise, packed documents, ignored targets,
/// or fewer sequences. A batch contains what the members of its type allow (tessera/fsdp/testing/model_loads.hpp).
template <class Tested>
void check_model_loads() {
  constexpr std::string_view same = "a step takes what a dry run (device Meta) of the same batches takes";
  constexpr std::string_view most = "a plan is what the step takes whose batches take the most";
  const auto check = [&](int ranks, const auto& task) {
    const std::string words = detail::words_of(ranks, task);
    LoadBytes largest;  // load with the largest memory on rank 0
    for (const Load& load : all_loads(task.size.sequences)) {
      const std::string where = message(words, ", ", load.in_words());
      std::vector<LoadBytes> bytes;
      if (!report_errors(model_ends_without_error, where, [&] { bytes = bytes_of_load(ranks, task, load); })) return;
      for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
        const auto [taken, on_meta, planned] = bytes[rank];
        // Meta cannot read targets, and assumes that all of them count.
        if (load.targets == Counting::every ? taken != on_meta : taken > on_meta)
          return void(
              fail(same, message(where, ", rank ", rank), "the arena's peak is ", taken, " bytes, on Meta ", on_meta));
        if (rank == 0 && load.sequences == task.size.sequences)
          largest = {.taken = std::max(largest.taken, taken), .on_meta = 0, .planned = planned};
      }
    }
    if (largest.taken != largest.planned)
      fail(most, words, "the largest arena's peak is ", largest.taken, " bytes, planned ", largest.planned);
  };
  check(2, task_of<Tested>(detail::fsdp2()));
  check(1, task_of<Tested>(detail::fsdp2(), tiling::RunTimeTiling::tokens(5), {.recompute = true}));
}

/// Checks that a run resumed from a checkpoint has the losses of an uninterrupted run.
template <class Tested>
void check_model_resumes() {
  constexpr std::string_view asked =
      "a run that goes on from a checkpoint on as many ranks has the losses of a run that never stopped, to the bit";
  const auto task = task_of<Tested>(detail::fsdp2());
  check_resumes(asked, detail::words_of(2, task),
                [&](int steps, const std::filesystem::path& save_to, const std::filesystem::path& resume) {
                  return train_model(2, task, {.steps = steps, .save_to = save_to, .resume = resume});
                });
}

/// Checks the loss and gradients for the weights in golden() against the expected values.
template <class Tested>
void check_model_golden() {
  if constexpr (detail::has_golden<Tested>()) {
    using Comm = comm::Threads<>;
    using Model = TestedModel<Tested, RunTimeAny>;
    constexpr std::string_view asked =
        "a golden folder's weights give its loss within 1e-5 and its gradients within 1e-4";
    const std::filesystem::path folder = Tested::golden();
    const std::string where = message(folder.string(), ", 1 rank");
    report_errors(model_ends_without_error, where, [&] {
      const checkpoint::SafetensorsFile expected(folder / "expected.safetensors");
      const auto read = [&](const std::string& name, std::int64_t begin, std::int64_t count) {
        std::vector<double> values(static_cast<std::size_t>(count));
        expected.read_range(expected.at(name), begin, count, values.data());
        return values;
      };
      Comm::run(1, {}, [&](Comm& communicator) {
        train::Training<Model> training(communicator, Model(Model::Config::read(folder)), Tested::size(),
                                        detail::fsdp2());
        train::load_agreed_weights(communicator, training.module(), folder.string(), {});
        const typename Tested::Data data(communicator.rank(), training.module().model().config());
        double targets = 0, loss = 0;
        for (const auto& batch : data.batches) targets += static_cast<double>(batch.counts().valid_targets);
        for (const auto& batch : data.batches) loss += training.executor().evaluate(batch);
        loss /= targets;
        const double known = read("loss", 0, 1).front();
        if (!(std::abs(loss - known) <= 1e-5 * std::abs(known)))
          fail(asked, where, "the loss is ", in_words(loss), " instead of ", in_words(known));
        training.executor().train(data.batches, static_cast<float>(1 / targets));
        for (const auto& piece : training.module().shards()) {
          const std::vector<double> values = read("grad." + piece.parameter->name, 0, piece.parameter->shape.numel());
          double size = 0, difference = 0;
          for (const double value : values) size += value * value;
          for (std::int64_t i = 0; i < piece.main.numel(); ++i) {
            const double error =
                static_cast<double>(piece.gradient[i]) - values[static_cast<std::size_t>(piece.begin + i)];
            difference += error * error;
          }
          if (!(std::sqrt(difference) <= 1e-4 * std::sqrt(size)))
            fail(asked, where, "the gradient of ", piece.parameter->name, " is off by ",
                 in_words(std::sqrt(difference / size)), " of its norm");
        }
      });
    });
  } else {
    GTEST_SKIP() << "the struct names no golden folder";
  }
}

template <class Tested>
class ModelSuite : public ::testing::Test {};

FSDP_SUITE(ModelSuite, (NamesItsParameters, check_model_listing<TypeParam>()),
           (Learns, check_model_learns<TypeParam>()),
           (IsTheSameUnderEveryStrategyAndTiling, check_model_strategies<TypeParam>()),
           (GradientsAreDerivativesOfTheLoss, check_model_gradients<TypeParam>()),
           (TakesWhatWasPlanned, check_model_bytes<TypeParam>()),
           (TakesWhatWasPlannedWhateverItsBatchesCarry, check_model_loads<TypeParam>()),
           (GoesOnFromACheckpoint, check_model_resumes<TypeParam>()), (IsItsGolden, check_model_golden<TypeParam>()));

}  // namespace fsdp::testing
