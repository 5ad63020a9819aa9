// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/first_weights.hpp>

#include <mutex>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/run/estimate.hpp>

namespace fsdp::train {

bool starts_from_folder(const TrainOptions& options, bool names_folder, bool adapters) {
  if (!names_folder || options.from_scratch) return false;
  const bool stored = [&] {
    try {
      return checkpoint::holds_weights(options.model.name);
    } catch (const InputError& error) {
      throw InputError(message(error.what(), ". Training from random weights instead takes --from-scratch"));
    }
  }();
  require<InputError>(stored || !adapters, "--model ", options.model.name, " holds no weights, and adapters would be ",
                      "trained beside random ones; give a folder with weights, or --from-scratch");
  return stored;
}

bool plans_without_weights(const TrainOptions& options) {
  if (options.resume || options.from_scratch || starts_from_folder(options, true, false)) return false;
  static std::once_flag once;  // --fit plans many steps
  if (prints_plans())
    std::call_once(once, [&] {
      print_sentence(message("--model ", options.model.name, " holds no weights, and this plan needs its config.json ",
                             "alone; training adapters needs them, or --from-scratch"));
    });
  return true;
}

void load_with_disk_deadline(const comm::Ranks& ranks, const LaunchOptions& launch, const std::string& folder,
                             FunctionRef<void(const checkpoint::Warn& warn)> load) {
  const auto warn = [&](const std::string& text) {
    if (ranks.rank() == 0) print_warning(text);
  };
  with_disk_deadline(ranks, launch.disk_deadline_seconds, message("reading ", folder, " (--disk-deadline)"),
                     [&] { load(warn); });
}

}  // namespace fsdp::train
