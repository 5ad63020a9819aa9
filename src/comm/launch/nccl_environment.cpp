// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of tessera/comm/nccl_table.hpp that sets environment variables, for programs that own their process.
#include <tessera/comm/nccl_table.hpp>

#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>

#include <tessera/fsdp/core/environment.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp::comm::nccl {
namespace {

constexpr const char* launch_order = "NCCL_LAUNCH_ORDER_IMPLICIT";
constexpr const char* nvls_enable = "NCCL_NVLS_ENABLE";
/// Variables that are reported if the user sets them: they choose among NCCL's algorithms, and so change sums.
constexpr const char* reported[] = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_COLLNET_ENABLE", "NCCL_CTA_POLICY"};

/// Whether NCCL reads the variable as a number other than 0 (param.cc).
bool is_on(const char* name) { return std::strtoll(environment(name).data(), nullptr, 0) != 0; }

}  // namespace

Settings set_environment(bool fast_reductions) {
  static std::mutex mutex;
  static std::set<std::string_view> ours;  ///< the variables that this process has set itself
  const std::lock_guard lock(mutex);       // ranks may be threads
  require<InputError>(
      !fast_reductions || !ours.contains(nvls_enable),
      "--reductions fast: this process has set NCCL_NVLS_ENABLE=0 for an earlier job, and NCCL reads it "
      "once; start another process");
  const auto set = [](const char* name, const char* value) {
    if (!environment(name).empty()) return;
    require(::setenv(name, value, 1) == 0, name, " cannot be set");
    ours.insert(name);
  };
  set(launch_order, "1");
  if (!fast_reductions) set(nvls_enable, "0");

  Settings settings{.launch_order = is_on(launch_order) ? LaunchOrder::implicit : LaunchOrder::none};
  settings.nvls = environment(nvls_enable).empty() || is_on(nvls_enable) ? Nvls::allowed : Nvls::off;
  const auto report = [&settings](const char* name) {
    if (const std::string_view value = environment(name); !value.empty())
      settings.text += message(settings.text.empty() ? "" : ", ", name, "=", shortened(value),
                               ours.contains(name) ? "" : " (set by the user)");
  };
  report(launch_order);
  report(nvls_enable);
  for (const char* const name : reported) report(name);
  return settings;
}

}  // namespace fsdp::comm::nccl
