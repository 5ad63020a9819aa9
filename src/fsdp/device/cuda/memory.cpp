// SPDX-License-Identifier: Apache-2.0
/// @file
/// Devices and their memory.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cuda.hpp>

#include "kernels.hpp"
#include "runtime.hpp"

namespace fsdp::device {
namespace {

using cuda::require_success;

/// Formats a CUDA version: 13000 becomes "13.0".
std::string version(int number) { return message(number / 1000, ".", number % 1000 / 10); }

struct DeviceBytes {
  std::size_t unused = 0, all = 0;
};
DeviceBytes device_bytes() {
  DeviceBytes bytes;
  require_success(cudaMemGetInfo(&bytes.unused, &bytes.all), "asking for free memory");
  return bytes;
}

/// Throws InputError if the device cannot be used; else returns its free and total bytes.
DeviceBytes usable_device_bytes() {
  const std::string problem = cuda_problem();
  require<InputError>(problem.empty(), problem);
  return device_bytes();
}

/// Clears the error of a failed cudaMalloc, which the next call would otherwise return.
void forget_error() { static_cast<void>(cudaGetLastError()); }

/// The machine's problem, if there is one, and its number of devices. Determined without creating a context.
struct Machine {
  std::string problem = {};
  int devices = 0;
};
Machine look_at_machine() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");  // NOLINT(concurrency-mt-unsafe): see environment
  int driver = 0, runtime = 0, count = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) return {.problem = "no device: CUDA's driver is not installed"};
  const cudaError_t counted = cudaGetDeviceCount(&count);
  forget_error();
  if (counted == cudaErrorInsufficientDriver)
    return {.problem = message("the driver is made for CUDA ", version(driver), ", this program for CUDA ",
                               version(runtime), "; install a newer driver")};
  if (counted == cudaErrorNoDevice || (counted == cudaSuccess && count == 0))
    return {.problem = message("no device: CUDA's driver sees no GPU",
                               visible == nullptr ? "" : message(" (CUDA_VISIBLE_DEVICES is '", visible, "')"))};
  if (counted != cudaSuccess) return {.problem = message("no device: ", cudaGetErrorString(counted))};
  return {.devices = count};
}

/// Throws InputError if the device cannot be used. Creates no context.
cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, device);
  require<InputError>(status == cudaSuccess, "device ", device, " cannot be used: ", cudaGetErrorString(status));
  return properties;
}

/// Returns the problem of the calling thread's device. Creates a context on it.
std::string problem_of_device() {
  int device = 0;
  cudaDeviceProp properties{};
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, device);
  if (status == cudaSuccess) status = cuda::probe();
  forget_error();
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction)
    return message("device ", device, ", ", properties.name, ", is sm_", properties.major, properties.minor,
                   ", and this build has code for " FSDP_CUDA_ARCHITECTURES
                   "; configure with -DTESSERA_CUDA_ARCHITECTURES=",
                   properties.major, properties.minor);
  if (status != cudaSuccess) return message("device ", device, " cannot be used: ", cudaGetErrorString(status));
  return {};
}

}  // namespace

void cuda::require_launched(const char* kernel) { require_success(cudaGetLastError(), kernel); }

std::string cuda_problem() {
  const Machine machine = look_at_machine();
  return machine.problem.empty() ? problem_of_device() : machine.problem;
}

int cuda_devices() { return look_at_machine().devices; }

int Cuda::count() {
  const Machine machine = look_at_machine();
  require<InputError>(machine.problem.empty(), machine.problem);
  return machine.devices;
}

std::string Cuda::kind() {
  int device = 0;
  require_success(cudaGetDevice(&device), "asking for the device");
  const cudaDeviceProp properties = properties_of(device);
  return message(properties.name, ", sm_", properties.major, properties.minor);
}

std::string Cuda::uuid(int index) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text = "GPU";
  for (int at = 0; const char byte : properties_of(index).uuid.bytes) {
    if (at == 0 || (at >= 4 && at <= 10 && at % 2 == 0)) text += '-';
    text += {digits[byte >> 4 & 15], digits[byte & 15]};
    ++at;
  }
  return text;
}

std::string Cuda::bus_id(int index) {
  std::array<char, 32> text{};
  require_success(cudaDeviceGetPCIBusId(text.data(), text.size(), index), "asking for the PCI address");
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });  // as in /sys
  return text.data();
}

std::int64_t Cuda::free_bytes() { return static_cast<std::int64_t>(usable_device_bytes().unused); }
std::int64_t Cuda::total_bytes() { return static_cast<std::int64_t>(usable_device_bytes().all); }

void use_cuda_device(int index) {
  const int count = cuda_devices();
  require<InputError>(index >= 0 && index < count, "device ", index, " asked for, ", count,
                      " there; give every rank a GPU of its own, or run fewer ranks");
  const cudaError_t chosen = cudaSetDevice(index);
  require<InputError>(chosen == cudaSuccess, "device ", index, " cannot be used: ", cudaGetErrorString(chosen));
  const std::string problem = problem_of_device();
  require<InputError>(problem.empty(), problem);
}

std::byte* Cuda::allocate(std::int64_t bytes) {
  require<MemoryError>(bytes >= 0, "cannot allocate ", bytes, " bytes");
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    forget_error();
    const auto [unused, all] = device_bytes();
    throw MemoryError(message("the device gave no ", bytes, " bytes of memory: ", unused, " of ", all,
                              " are free; lower the batch, the sequence or the kept tiles, or shard over more ranks "
                              "(see --dry-run)"));
  }
  if (const std::string problem = status == cudaSuccess ? "" : cuda_problem(); !problem.empty())
    throw InputError("cuda: " + problem);
  require_success(status, "allocating memory");
  cudaError_t cleared = cudaMemset(data, 0, static_cast<std::size_t>(bytes));
  if (cleared == cudaSuccess) cleared = cudaStreamSynchronize(nullptr);  // for which other streams do not wait
  if (cleared != cudaSuccess) static_cast<void>(cudaFree(data));
  require_success(cleared, "clearing memory");
  return static_cast<std::byte*>(data);
}

void Cuda::deallocate(std::byte* data, std::int64_t) {
  // Called by destructors, so errors of earlier work are left for calls that can throw.
  if (data != nullptr) static_cast<void>(cudaFree(data));
}

void Cuda::poison(std::byte* data, std::int64_t bytes) {
  if (!cuda::fills_released_memory || bytes == 0 || data == nullptr) return;
  // Waits, since enqueued work may still read the memory. Called by destructors, so errors are left for calls that can
  // throw.
  static_cast<void>(cudaDeviceSynchronize());
  static_cast<void>(cudaMemset(data, 0xff, static_cast<std::size_t>(bytes)));
  static_cast<void>(cudaDeviceSynchronize());
}

void Cuda::unpoison(std::byte*, std::int64_t) {}

std::byte* HostOffload<Cuda>::allocate(std::int64_t bytes) {
  require<MemoryError>(bytes >= 0, "cannot allocate ", bytes, " bytes");
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, static_cast<std::size_t>(bytes), cudaHostAllocPortable);
  if (status != cudaSuccess) forget_error();
  require<MemoryError>(status != cudaErrorMemoryAllocation, "the system gave no ", bytes,
                       " bytes of pinned host memory; keep less in host memory");
  require_success(status, "allocating pinned host memory");
  std::memset(data, 0, static_cast<std::size_t>(bytes));
  return static_cast<std::byte*>(data);
}

void HostOffload<Cuda>::deallocate(std::byte* data, std::int64_t) {
  if (data != nullptr) static_cast<void>(cudaFreeHost(data));
}

}  // namespace fsdp::device
