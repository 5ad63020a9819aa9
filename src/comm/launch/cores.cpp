// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/launch/cores.hpp>

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/rendezvous.hpp>
#include <tessera/fsdp/core/environment.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>

#include "../../fsdp/core/control_groups.hpp"
#include "../../fsdp/core/strings.hpp"

namespace fsdp::comm {
namespace {

bool overlap(const std::string& a, const std::string& b) {
  for (std::size_t core = 0; core < std::min(a.size(), b.size()); ++core)
    if (a[core] == '1' && b[core] == '1') return true;
  return false;
}

bool has_less(const SharedCores& a, const SharedCores& b) { return a.cores * b.ranks < b.cores * a.ranks; }

/// The processes that share the cores specified by a variable.
enum class Sharing { process, host, job };
struct CoreVariable {
  std::string_view name;
  Sharing among;
};
constexpr CoreVariable core_variables[] = {{"SLURM_CPUS_PER_TASK", Sharing::process},
                                           {"SLURM_CPUS_ON_NODE", Sharing::host},
                                           {"NCPUS", Sharing::host},             // PBS
                                           {"LSB_DJOB_NUMPROC", Sharing::job}};  // LSF: slots of all hosts

/// Returns the number in a variable (in a list such as OMP_NUM_THREADS=4,2, the first); 0 if it is not a number of at
/// least 1.
std::int64_t number_stated(std::string_view variable) {
  constexpr std::int64_t most = 4096;
  const std::string_view text = environment(variable.data());
  const std::int64_t value = parsed<std::int64_t>(text.substr(0, text.find(','))).value_or(0);
  return value <= most ? std::max<std::int64_t>(value, 0) : 0;
}

/// A rank's cores, and the cores that the job requested for its process.
struct RankCores {
  SharedCores has;
  std::int64_t ranks_of_process = 1, stated = 0, threads = 1;

  bool has_less_than_stated() const { return has.cores * ranks_of_process < stated * has.ranks; }
};

/// The result of agree_on_cores. Ranks that are threads of this process write it concurrently, with equal values.
struct Agreed {
  std::mutex mutex;
  int world = 0;
  SharedCores shared;
  std::int64_t threads = 1;
  std::optional<RankCores> short_of;  ///< the first rank that has fewer cores than its job requested
  std::string_view variable;          ///< name of the variable that specifies this process's cores
  bool warned = false;
};

std::string cores_text(std::int64_t cores) { return message(cores, cores == 1 ? " core" : " cores"); }

/// Returns how to get `cores` cores per process from the launcher that bound processes to fewer; empty if no known
/// launcher did.
std::string launcher_remedy(std::int64_t cores) {
  if (launched_by_open_mpi())
    return message("mpirun binds processes to a core each by default; give it --bind-to none, or --map-by slot:PE=",
                   cores);
  if (launched_job().launcher == "srun") return message("start it with srun --cpus-per-task=", cores);
  return {};
}

/// Returns whether ranks may run only on a part of the host's cores.
bool is_bound(const SharedCores& shared) { return shared.cores < ::sysconf(_SC_NPROCESSORS_ONLN); }

std::string shortage_text(const RankCores& rank, std::string_view variable) {
  const bool shared = rank.has.ranks > rank.ranks_of_process;
  const std::string remedy = launched_by_open_mpi() && !is_bound(rank.has) ? "" : launcher_remedy(rank.stated);
  return message(shared ? message(rank.has.ranks, " ranks share ") : "a process of this run may run on ",
                 cores_text(rank.has.cores), ", and the job requested ", rank.stated, " for each process (", variable,
                 "); ", remedy.empty() ? "look at its affinity mask (taskset) and its control group's quota" : remedy);
}

std::string oversubscription_text(const SharedCores& shared, std::int64_t threads) {
  const std::string each = message(threads, threads == 1 ? " thread" : " threads");
  const std::string bound = is_bound(shared) ? launcher_remedy(threads) : "";
  const std::string fewer = shared.cores >= shared.ranks ? message("take --threads ", shared.cores / shared.ranks)
                                                         : std::string("take fewer ranks");
  return message(
      shared.ranks == 1 ? message("a rank has ", each) : message(shared.ranks, " ranks have ", each, " each"),
      " and may run on ", cores_text(shared.cores), ", which makes steps slow; ", bound.empty() ? fewer : bound);
}

Agreed& agreed() {
  static Agreed state;
  return state;
}

}  // namespace

SharedCores shared_cores(std::span<const std::string> masks, std::span<const std::string> hosts, std::size_t rank,
                         std::optional<int> quota) {
  const std::string& mine = masks[rank];
  SharedCores by_mask{.cores = std::max<std::int64_t>(std::ranges::count(mine, '1'), 1), .ranks = 0};
  std::int64_t ranks_here = 0;
  for (std::size_t other = 0; other < masks.size(); ++other) {
    if (!hosts.empty() && hosts[other] != hosts[rank]) continue;
    ++ranks_here;
    if (other == rank || overlap(masks[other], mine)) ++by_mask.ranks;
  }
  const SharedCores by_quota{.cores = quota.value_or(0), .ranks = ranks_here};
  return quota && has_less(by_quota, by_mask) ? by_quota : by_mask;
}

StatedCores stated_cores(std::int64_t processes_here, std::int64_t processes) {
  StatedCores stated{.threads = number_stated("OMP_NUM_THREADS")};
  for (const CoreVariable& each : core_variables) {
    const std::int64_t sharing = each.among == Sharing::process ? 1
                                 : each.among == Sharing::host  ? processes_here
                                                                : processes;
    stated.cores = number_stated(each.name) / std::max<std::int64_t>(sharing, 1);
    stated.variable = each.name;
    if (stated.cores > 0) return stated;
  }
  stated.variable = {};
  return stated;
}

std::int64_t default_threads(const SharedCores& has, const StatedCores& stated, std::int64_t ranks_of_process) {
  if (stated.threads > 0) return stated.threads;
  const std::int64_t own = threads_per_rank(0, has.cores, has.ranks);
  return stated.cores > 0 ? std::min(own, threads_per_rank(0, stated.cores, ranks_of_process)) : own;
}

void agree_on_cores(const Ranks& ranks) {
  const std::vector<std::string> masks = gather_texts(ranks, device::affinity_mask(), "affinity masks");
  const std::vector<std::string>& hosts = ranks.monitor().hosts;
  const auto rank = static_cast<std::size_t>(ranks.rank());
  const bool are_threads = hosts.empty() && launched_job().processes <= 1;
  const std::int64_t here = are_threads     ? 1
                            : hosts.empty() ? ranks_on_this_machine(ranks.size())
                                            : std::ranges::count(hosts, hosts[rank]);
  const StatedCores stated = stated_cores(here, are_threads ? 1 : ranks.size());
  RankCores own{.has = shared_cores(masks, hosts, rank, quota_of_cores()),
                .ranks_of_process = are_threads ? ranks.size() : 1,
                .stated = is_bound_near_device() ? 0 : stated.cores};  // no launcher could give more
  own.threads = default_threads(own.has, stated, own.ranks_of_process);
  std::vector<RankCores> all(masks.size());
  ranks.gather_bytes(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)), {"shared cores"});
  const auto found = std::ranges::find_if(all, &RankCores::has_less_than_stated);
  const std::lock_guard lock(agreed().mutex);
  agreed().world = ranks.size();
  agreed().shared = std::ranges::min_element(all, has_less, &RankCores::has)->has;
  agreed().threads = std::ranges::min_element(all, {}, &RankCores::threads)->threads;
  agreed().short_of = found == all.end() ? std::nullopt : std::optional(*found);
  agreed().variable = stated.variable;
}

std::string cores_warning(int ranks, std::int64_t threads) {
  const std::lock_guard lock(agreed().mutex);
  if (agreed().warned || agreed().world != ranks) return {};
  std::string text;
  const SharedCores& shared = agreed().shared;
  if (agreed().short_of)
    text = shortage_text(*agreed().short_of, agreed().variable);
  else if (threads * shared.ranks > shared.cores)
    text = oversubscription_text(shared, threads);
  agreed().warned = !text.empty();
  return text;
}

SharedCores cores_shared_by(int ranks) {
  {
    const std::lock_guard lock(agreed().mutex);
    if (agreed().world == ranks) return agreed().shared;
  }
  return {.cores = device::available_cores(), .ranks = ranks_on_this_machine(ranks)};
}

int ranks_on_this_machine(int ranks) {
  const int launched = launched_ranks_on_this_machine();
  return launched > 0 ? launched : ranks;
}

std::int64_t threads_per_rank(std::int64_t asked, std::int64_t cores, std::int64_t ranks_here) {
  return asked > 0 ? asked : std::max<std::int64_t>(cores / std::max<std::int64_t>(ranks_here, 1), 1);
}

int rank_threads(std::int64_t asked, int ranks) {
  if (asked > 0) return static_cast<int>(asked);
  {
    const std::lock_guard lock(agreed().mutex);
    if (agreed().world == ranks) return static_cast<int>(agreed().threads);
  }
  const SharedCores shared = cores_shared_by(ranks);
  return static_cast<int>(threads_per_rank(0, shared.cores, shared.ranks));
}

int planned_threads(std::int64_t asked, int ranks) {
  if (asked > 0) return static_cast<int>(asked);
  const std::int64_t processes = launched_job().processes, here = ranks_on_this_machine(ranks);
  const StatedCores stated = stated_cores(processes > 1 ? here : 1, processes);
  const SharedCores has{.cores = device::available_cores(), .ranks = here};
  return static_cast<int>(default_threads(has, stated, processes > 1 ? 1 : ranks));
}

}  // namespace fsdp::comm
