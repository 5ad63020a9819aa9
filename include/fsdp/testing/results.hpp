// SPDX-License-Identifier: Apache-2.0
/// @file
/// The results of a training run, and their comparison with another run and with the planned memory. Contains no tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/temporary_folder.hpp>

namespace fsdp::testing {

using TensorsByName = std::map<std::string, std::vector<float>>;

/// The results of a run over ranks. Each kind of run fills the fields that apply to it.
struct RunResult {
  explicit RunResult(int ranks = 0) : planned(static_cast<std::size_t>(ranks)), taken(planned) {}

  std::vector<double> losses;                       ///< losses of the taken steps, identical on all ranks
  TensorsByName weights;                            ///< unsharded weights
  TensorsByName states;                             ///< unsharded optimizer states, named "parameter.state"
  std::vector<device::BytesByKind> planned, taken;  ///< bytes of each rank
  std::int64_t gathers = 0, reductions = 0;         ///< number of collectives of one step in the schedule of rank 0
  std::int64_t gathered = 0, reduced = 0;           ///< number of collectives of one step in which rank 0 took part
};

namespace detail {

FSDP_HAS_MEMBER(lr)

/// Returns the learning rate of a tested type's runs: its `lr`, or 0.01.
template <class Tested>
constexpr double lr_of() {
  if constexpr (has_lr<Tested>()) return Tested::lr;
  return 0.01;
}

}  // namespace detail

inline constexpr std::string_view ended_with_error = "training ended with an error: ";

/// Returns run(). If it throws, the failure's message begins with `ended`, and nullopt is returned.
std::optional<RunResult> result_of(std::string_view asked, const Where& where, auto run,
                                   std::string_view ended = ended_with_error) {
  std::optional<RunResult> result;
  report_errors(
      asked, where, [&] { result = run(); }, ended);
  return result;
}

/// Calls expect(name, found values, expected values) for every tensor, until one fails.
bool expect_tensors(std::string_view asked, const Where& where, const TensorsByName& found,
                    const TensorsByName& expected, auto expect) {
  for (const auto& [name, values] : expected) {
    const auto at = found.find(name);
    if (at == found.end()) return fail(asked, where, "no rank holds ", name);
    if (!expect(name, at->second, values)) return false;
  }
  return found.size() == expected.size() || fail(asked, where, found.size(), " tensors instead of ", expected.size());
}

inline bool expect_same_run(std::string_view asked, const Where& where, const RunResult& found,
                            const RunResult& expected) {
  const auto same = [&](const std::string& name, const auto& a, const auto& b) {
    return expect_values(asked, where, name, a, b);
  };
  return same("the losses of the steps", found.losses, expected.losses) &&
         expect_tensors(asked, where, found.weights, expected.weights, same) &&
         expect_tensors(asked, where, found.states, expected.states, same);
}

/// Checks that losses agree within 1e-5 of the first loss, and weights within 1e-5 of a tensor's largest weight.
inline bool expect_near_run(std::string_view asked, const Where& where, const RunResult& found,
                            const RunResult& expected) {
  return expect_losses_near(asked, where, found.losses, expected.losses) &&
         expect_tensors(asked, where, found.weights, expected.weights,
                        [&](const std::string& name, const auto& a, const auto& b) {
                          return expect_near(asked, where, name, a, b);
                        });
}

/// Checks that a run of three steps, resumed from its checkpoint for three more, has the result of a run of six steps.
/// train(steps, folder to save to, folder to resume from) trains; either path may be empty.
void check_resumes(std::string_view asked, const Where& where, auto train) {
  const TemporaryFolder folder;
  RunResult whole, resumed;
  const bool ended = report_errors(
      asked, where,
      [&] {
        whole = train(6, {}, {});
        train(3, folder.path(), {});
        resumed = train(6, {}, folder.path());
      },
      ended_with_error);
  if (!ended) return;
  whole.losses.erase(whole.losses.begin(), whole.losses.begin() + 3);
  expect_same_run(asked, where, resumed, whole);
}

inline constexpr std::string_view takes_planned_bytes =
    "every rank takes as many bytes of every kind as its dry run planned";

/// Fails for every kind of memory whose bytes differ from the plan.
inline bool expect_planned_bytes(const Where& where, std::size_t rank, const device::BytesByKind& taken,
                                 const device::BytesByKind& planned) {
  const std::string rank_there = message(where.words, ", rank ", rank);
  bool same = true;
  for (std::size_t kind = 0; kind < planned.size(); ++kind)
    same = expect_value(takes_planned_bytes, rank_there, device::memory_kind_names[kind], taken[kind], planned[kind]) &&
           same;
  return same;
}

inline bool expect_planned_bytes(const Where& where, const RunResult& found) {
  bool same = true;
  for (std::size_t rank = 0; rank < found.planned.size(); ++rank)
    same = expect_planned_bytes(where, rank, found.taken[rank], found.planned[rank]) && same;
  return same;
}

}  // namespace fsdp::testing
