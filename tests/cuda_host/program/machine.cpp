// SPDX-License-Identifier: Apache-2.0
/// @file
/// Configures the fakes of CUDA and NCCL from the environment, before `main` of a program that does not know them.
///
///   TESSERA_DOUBLE_GPUS=N         number of GPUs of the machine (default 2)
///   CUDA_VISIBLE_DEVICES=N        the process sees only this GPU
///   TESSERA_DOUBLE_DRIVER=N       newest CUDA version that the driver supports, such as 12040
///   TESSERA_DOUBLE_NCCL=N         version of the loaded NCCL, such as 21703
///   TESSERA_DOUBLE_GPU_BYTES=N    memory of each GPU
///   TESSERA_DOUBLE_FOLDER=PATH    folder in which processes that are NCCL ranks find each other
///   TESSERA_DOUBLE_FAULT=CALL:N   the Nth call of that function fails
///   TESSERA_DOUBLE_SLOW_START=MS  this process joins NCCL's first communicator later by so many milliseconds
///   TESSERA_DOUBLE_SEED=N         see doubles/nccl.cpp
///   TESSERA_DOUBLE_REPORT=FILE    file for the report at the end: `left KIND N` for unreleased objects, `peak BYTES`
///   of
///                                 the GPU with the highest peak, `calls FUNCTION N`
/// A broken rule prints a line on stderr that begins with "double:"; it does not end the program.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "../doubles/machine.hpp"
#include "../doubles/nccl.hpp"

namespace fsdp::testing::cuda_host {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class FromEnvironment {
 public:
  FromEnvironment() {
    Machine& machine = Machine::instance();
    const std::string gpus = variable("TESSERA_DOUBLE_GPUS"), bytes = variable("TESSERA_DOUBLE_GPU_BYTES"),
                      visible = variable("CUDA_VISIBLE_DEVICES"), driver = variable("TESSERA_DOUBLE_DRIVER"),
                      nccl = variable("TESSERA_DOUBLE_NCCL");
    machine.reset(!visible.empty() ? 1 : gpus.empty() ? 2 : std::stoi(gpus));
    if (!visible.empty()) machine.first_gpu = std::stoi(visible);
    if (!driver.empty()) machine.driver_version = std::stoi(driver);
    if (!nccl.empty()) cuda_host::nccl().version = std::stoi(nccl);
    if (!bytes.empty()) machine.device_bytes = std::stoull(bytes);
    machine.patience = std::chrono::minutes(5);
    machine.tell = [](const std::string& problem) { std::fprintf(stderr, "double: %s\n", problem.c_str()); };
    cuda_host::nccl().folder = variable("TESSERA_DOUBLE_FOLDER");
    if (const std::string slow = variable("TESSERA_DOUBLE_SLOW_START"); !slow.empty())
      cuda_host::nccl().start_delay = std::chrono::milliseconds(std::stoi(slow));
    if (const std::string fault = variable("TESSERA_DOUBLE_FAULT"); !fault.empty()) {
      const auto colon = fault.find(':');
      machine.fail(fault.substr(0, colon), cudaErrorUnknown, std::stoi(fault.substr(colon + 1)));
    }
  }
  ~FromEnvironment() {
    if (report_.empty()) return;
    const Machine& machine = Machine::instance();
    std::ofstream file(report_);
    for (const auto& [kind, count] : machine.held()) file << "left " << kind << ' ' << count << '\n';
    file << "peak " << machine.most_bytes() << '\n';
    for (const auto& [function, count] : machine.calls()) file << "calls " << function << ' ' << count << '\n';
  }

 private:
  std::string report_ = variable("TESSERA_DOUBLE_REPORT");
} from_environment;

}  // namespace
}  // namespace fsdp::testing::cuda_host
