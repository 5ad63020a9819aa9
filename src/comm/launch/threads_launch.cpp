// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starts and joins the rank threads of comm::Threads.
#include <exception>
#include <thread>

#include <tessera/comm/threads.hpp>

#include "../threads_group.hpp"

namespace fsdp::comm {

int run_threads(int ranks, const Options& options, const std::function<int(std::unique_ptr<ThreadsRank>)>& f) {
  const auto group = group_of_threads(ranks);
  const auto& world = group->world;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<int> statuses(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    const auto body = [&](std::size_t index) {
      try {
        const int rank = static_cast<int>(index);
        statuses[index] =
            f(std::make_unique<ThreadsRank>(group, rank, rank, options, ThreadsRank::End::is_reported_by_launcher));
      } catch (const std::exception& error) {
        errors[index] = std::current_exception();
        world->poison(static_cast<int>(index), error.what());
      } catch (...) {
        errors[index] = std::current_exception();
        world->poison(static_cast<int>(index), "an exception of unknown type");
      }
    };
    try {
      for (std::size_t index = 0; index < statuses.size(); ++index) threads.emplace_back(body, index);
    } catch (const std::exception& error) {
      world->poison(static_cast<int>(threads.size()), error.what());
      errors[threads.size()] = std::current_exception();
    }
  }
  // The first failure is the cause; the other ranks' errors only report it.
  if (world->poisoned() && errors[static_cast<std::size_t>(world->failed_rank())])
    std::rethrow_exception(errors[static_cast<std::size_t>(world->failed_rank())]);
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  for (int status : statuses)
    if (status != 0) return status;
  return 0;
}

}  // namespace fsdp::comm
