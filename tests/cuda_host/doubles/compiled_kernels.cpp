// SPDX-License-Identifier: Apache-2.0
/// @file
/// The runtime functions that nvcc's objects call: they register their cubins and kernels at program start, and launch
/// kernels by handle.
///
/// A fat binary is a header (magic, version, header bytes as u16, then u64 bytes) and entries (kind and version as u16,
/// header bytes as u32, u64 bytes). Kind 2 is a cubin, an ELF file. In it, the size of `.nv.shared.<kernel>` is the
/// static shared memory including the bytes that the system reserves; `.nv.info` has the registers by the kernel's
/// symbol, which is the sh_info of `.text.<kernel>`. Compressed entries are not read: compile with --no-compress.
#include "compiled_kernels.hpp"

#include <cuda_runtime_api.h>
#include <elf.h>

#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

#include "machine.hpp"

namespace fsdp::testing::cuda_host {
namespace {

struct Wrapper {
  int magic, version;
  const std::byte* data;
  void* more;
};

struct Sizes {
  std::size_t shared = 0;
  unsigned registers = 0;
};
struct Binary {
  std::map<std::string, Sizes> kernels;
};

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Reads the registers of each symbol from `.nv.info`. An attribute is a format byte and a number byte, then a value of
/// 2 bytes or, in format 4, a length of 2 bytes and that many bytes. Number 0x2f has a symbol and its registers.
std::map<std::uint32_t, unsigned> read_registers(const std::byte* data, std::size_t bytes) {
  std::map<std::uint32_t, unsigned> registers;
  for (const std::byte* at = data; at < data + bytes;) {
    const auto format = std::to_integer<int>(at[0]), number = std::to_integer<int>(at[1]);
    if (format == 4 && number == 0x2f) registers[read<std::uint32_t>(at + 4)] = read<std::uint32_t>(at + 8);
    at += 4 + (format == 4 ? read<std::uint16_t>(at + 2) : 0);
  }
  return registers;
}

void read_cubin(const std::byte* elf, Binary& binary) {
  if (std::memcmp(elf, ELFMAG, SELFMAG) != 0) return;
  const auto header = read<Elf64_Ehdr>(elf);
  const auto section = [&](std::size_t i) { return read<Elf64_Shdr>(elf + header.e_shoff + i * header.e_shentsize); };
  const Elf64_Shdr names = section(header.e_shstrndx);
  std::map<std::uint32_t, unsigned> registers;
  std::map<std::string, std::uint32_t> symbols;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr found = section(i);
    const std::string name = reinterpret_cast<const char*>(elf + names.sh_offset + found.sh_name);
    constexpr std::string_view text = ".text.", shared = ".nv.shared.";
    if (name == ".nv.info") registers = read_registers(elf + found.sh_offset, found.sh_size);
    if (name.rfind(text, 0) == 0) symbols[name.substr(text.size())] = found.sh_info & 0xffffff;
    if (name.rfind(shared, 0) == 0)
      binary.kernels[name.substr(shared.size())].shared = found.sh_size - Limits::shared_reserved;
  }
  for (const auto& [name, symbol] : symbols) binary.kernels[name].registers = registers[symbol];
}

Binary read_fat_binary(const std::byte* data) {
  Binary binary;
  const std::byte* const begin = data + read<std::uint16_t>(data + 6);
  const std::byte* const end = begin + read<std::uint64_t>(data + 8);
  for (const std::byte* entry = begin; entry < end;) {
    const auto header = read<std::uint32_t>(entry + 4);
    const auto bytes = read<std::uint64_t>(entry + 8);
    if (read<std::uint16_t>(entry) == 2) read_cubin(entry + header, binary);
    entry += header + bytes;
  }
  return binary;
}

struct Registry {
  std::vector<CompiledKernel> kernels;
  std::map<const void*, std::size_t> by_address;
  std::vector<Launch> launches;
};
/// Created when the first object registers: before main, and in no fixed order with other globals.
Registry& registry() {
  static Registry made;
  return made;
}

struct Configuration {
  dim3 blocks, threads;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local Configuration configuration;

cudaError_t refuse(const CompiledKernel& kernel, const std::string& why, cudaError_t error) {
  machine().problem(kernel.name + ": " + why);
  return Machine::leave(error);
}

cudaError_t launch(const CompiledKernel& kernel, dim3 blocks, dim3 threads, std::size_t shared) {
  if (const cudaError_t error = machine().enter("cudaLaunchKernel", true); error != cudaSuccess)
    return Machine::leave(error);
  if (shared > kernel.most_dynamic())
    return refuse(kernel,
                  message(shared, " bytes of dynamic shared memory, ", kernel.static_shared, " of static; ",
                          kernel.most_dynamic(), " may be dynamic"),
                  cudaErrorInvalidValue);
  const unsigned count = threads.x * threads.y * threads.z;
  if (count == 0 || count > Limits::threads || blocks.x == 0 || blocks.y == 0 || blocks.y > 65535)
    return refuse(kernel, message(blocks.x, " x ", blocks.y, " blocks of ", count, " threads"),
                  cudaErrorInvalidConfiguration);
  // Registers are allocated per warp in units of 256.
  const std::size_t registers = (kernel.registers * std::size_t{32} + 255) / 256 * 256 * ((count + 31) / 32);
  if (registers > Limits::registers)
    return refuse(kernel, message(count, " threads of ", kernel.registers, " registers"),
                  cudaErrorLaunchOutOfResources);
  registry().launches.push_back({&kernel, blocks.x * blocks.y, count, shared});
  return cudaSuccess;
}

}  // namespace

const std::vector<CompiledKernel>& compiled_kernels() { return registry().kernels; }
std::vector<Launch> take_launches() { return std::exchange(registry().launches, {}); }

}  // namespace fsdp::testing::cuda_host

using namespace fsdp::testing::cuda_host;

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  auto* const binary = new Binary(read_fat_binary(static_cast<const Wrapper*>(wrapper)->data));
  return reinterpret_cast<void**>(binary);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void** handle) { delete reinterpret_cast<Binary*>(handle); }
void __cudaRegisterFunction(void** handle, const char* address, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
  const Sizes sizes = reinterpret_cast<Binary*>(handle)->kernels[name];
  registry().by_address[address] = registry().kernels.size();
  registry().kernels.push_back({.name = name, .static_shared = sizes.shared, .registers = sizes.registers});
}

unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads, std::size_t shared, CUstream_st* stream) {
  configuration = {blocks, threads, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* blocks, dim3* threads, std::size_t* shared, void* stream) {
  *blocks = configuration.blocks;
  *threads = configuration.threads;
  *shared = configuration.shared;
  std::memcpy(stream, &configuration.stream, sizeof configuration.stream);
  return cudaSuccess;
}
/// A handle is the number of a kernel, counted from 1.
cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* address) {
  *handle = reinterpret_cast<cudaKernel_t>(registry().by_address.at(address) + 1);
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t handle, dim3 blocks, dim3 threads, void**, std::size_t shared,
                               cudaStream_t) {
  return launch(registry().kernels[reinterpret_cast<std::size_t>(handle) - 1], blocks, threads, shared);
}
cudaError_t cudaLaunchKernel(const void* address, dim3 blocks, dim3 threads, void**, std::size_t shared, cudaStream_t) {
  return launch(registry().kernels[registry().by_address.at(address)], blocks, threads, shared);
}

cudaError_t cudaFuncSetAttribute(const void* address, cudaFuncAttribute attribute, int value) {
  CompiledKernel& kernel = registry().kernels[registry().by_address.at(address)];
  const auto bytes = static_cast<std::size_t>(value);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || kernel.static_shared + bytes > Limits::shared)
    return refuse(kernel, fsdp::message("an attribute of ", value), cudaErrorInvalidValue);
  kernel.dynamic_asked = bytes;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* address) {
  if (const cudaError_t error = machine().enter("cudaFuncGetAttributes", true); error != cudaSuccess)
    return Machine::leave(error);
  const CompiledKernel& kernel = registry().kernels[registry().by_address.at(address)];
  *attributes = {};
  attributes->sharedSizeBytes = kernel.static_shared;
  attributes->numRegs = static_cast<int>(kernel.registers);
  return cudaSuccess;
}
}
