// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of tessera/comm/rendezvous.hpp that reads the launcher's environment variables and binds the process.
#include <tessera/comm/rendezvous.hpp>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/fsdp/core/environment.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/device/cpu.hpp>

#include "../../fsdp/core/control_groups.hpp"
#include "../../fsdp/core/strings.hpp"

namespace fsdp::comm {
namespace {

thread_local bool bound_near_device = false;

std::string_view required(const char* name) {
  const std::string_view value = environment(name);
  require<InputError>(!value.empty(), name,
                      " is not set, but others of a job's variables are; torchrun sets RANK, "
                      "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT");
  return value;
}

int number(const char* name, std::string_view text, int least, int most) {
  const std::optional<int> value = parsed<int>(text);
  require<InputError>(value && *value >= least && *value <= most, name, " is '", shortened(text),
                      "'; it must be a number from ", least, " to ", most);
  return *value;
}

}  // namespace

bool launched_by_torchrun() { return !environment("RANK").empty() || !environment("WORLD_SIZE").empty(); }

JobPlace torchrun_place() {
  if (!launched_by_torchrun()) {
    require_one_process("a rank of NCCL alone", "start the ranks with torchrun's variables (RANK, WORLD_SIZE)");
    return {};
  }
  constexpr int many = 1 << 20;
  JobPlace place;
  place.size = number("WORLD_SIZE", required("WORLD_SIZE"), 1, many);
  place.rank = number("RANK", required("RANK"), 0, many);
  place.local_rank = number("LOCAL_RANK", required("LOCAL_RANK"), 0, many);
  require<InputError>(place.rank < place.size, "RANK is ", place.rank, ", WORLD_SIZE ", place.size,
                      "; ranks are 0 to WORLD_SIZE - 1");
  const std::string_view local_size = environment("LOCAL_WORLD_SIZE");
  place.local_size = local_size.empty() ? place.local_rank + 1 : number("LOCAL_WORLD_SIZE", local_size, 1, many);
  require<InputError>(place.local_rank < place.local_size && place.local_size <= place.size, "LOCAL_RANK is ",
                      place.local_rank, ", LOCAL_WORLD_SIZE ", place.local_size, ", WORLD_SIZE ", place.size,
                      "; a machine has at most all ranks, and LOCAL_RANK counts its own from 0");
  if (place.size == 1) return place;
  place.address = required("MASTER_ADDR");
  place.port = number("MASTER_PORT", required("MASTER_PORT"), 1, 65534);
  if (environment("TORCHELASTIC_USE_AGENT_STORE") == "True") ++place.port;
  return place;
}

int device_index(const JobPlace& place, int devices) {
  const bool shown_one =
      devices == 1 && !(environment("CUDA_VISIBLE_DEVICES").empty() && environment("SLURM_GPUS_PER_TASK").empty());
  require<InputError>(
      shown_one || place.local_size <= devices, place.local_size, " ranks run on this machine, which has ", devices,
      " devices; NCCL wants one for each: start fewer ranks, or compile a stack on comm::Threads<device::Cuda>, whose "
      "ranks share one");
  return shown_one ? 0 : place.local_rank;
}

std::string device_identity(const std::string& uuid) {
  const std::string_view host = environment("NCCL_HOSTID");
  return message(uuid, host.empty() ? "" : " of NCCL_HOSTID ", host);
}

bool bind_to_cores_near(const std::string& bus_id, const std::filesystem::path& sys) {
  const std::filesystem::path device = sys / "bus/pci/devices" / bus_id;
  if (fsdp::number_in(device / "numa_node").value_or(-1) < 0) return false;
  if (std::ranges::count(device::affinity_mask(), '1') < ::sysconf(_SC_NPROCESSORS_ONLN)) return false;
  cpu_set_t near;
  CPU_ZERO(&near);
  std::ifstream list(device / "local_cpulist");  // such as "0-15,64-79"
  for (int first = 0; list >> first;) {
    int last = first;
    if (list.peek() == '-' && !(list.ignore() >> last)) return false;
    for (int core = first; core <= last && core < CPU_SETSIZE; ++core) CPU_SET(core, &near);
    list.ignore();
  }
  return bound_near_device = CPU_COUNT(&near) > 0 && ::sched_setaffinity(0, sizeof near, &near) == 0;
}

bool is_bound_near_device() { return bound_near_device; }

}  // namespace fsdp::comm
