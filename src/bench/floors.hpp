// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the machine can do at best: matmuls alone, plain copies, a triad. Each by a rank's threads, in memory of its
/// own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include <fsdp/core/file.hpp>
#include <fsdp/device/cpu.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/operations.hpp>

namespace fsdp::bench {

using CpuBlock = device::Block<device::Cpu>;

/// The calling thread's OpenMP team, which collectives copy and sum with.
void use_threads(int threads);

/// Deterministic values in [-scale, scale): neither denormal nor growing when multiplied.
void fill_uniform(Tensor<float> values, float scale);
void fill_uniform(Tensor<bf16> values, float scale);

/// Matmuls of given shapes, transpositions and types, one after the other. Operands are contiguous and come from two
/// rings (what is read, what is written) of `ring_bytes`, so that they are no warmer in the caches than in a real step.
class MatmulReplay {
 public:
  MatmulReplay(std::vector<device::MatmulRecord> list, std::int64_t ring_bytes, int threads);

  void run();
  double flops() const { return flops_; }

 private:
  std::vector<device::MatmulRecord> list_;
  device::Ledger ledger_;
  device::Cpu::Arena arena_;
  device::Cpu::Stream stream_;
  CpuBlock read_, written_;
  double flops_ = 0;
};

/// `count` square matmuls in a compute type: the rate that attention's FLOPs are divided by.
std::vector<device::MatmulRecord> square_matmuls(DType dtype, std::int64_t size, int count);

/// memcpy of `bytes` from one block to another.
class Copies {
 public:
  Copies(std::int64_t bytes, int threads);

  void run() { run(0, bytes()); }
  /// A part of it.
  void run(std::int64_t begin, std::int64_t count);
  std::int64_t bytes() const { return from_.bytes(); }

 private:
  device::Ledger ledger_;
  CpuBlock from_, to_;
  int threads_;
};

/// a = b + s c (STREAM's triad) over three float arrays of `bytes` together.
class Triad {
 public:
  Triad(std::int64_t bytes, int threads);

  void run();
  std::int64_t bytes() const { return arrays_.bytes(); }  ///< read and written by one run

 private:
  device::Ledger ledger_;
  CpuBlock arrays_;
  int threads_;
};

/// Every byte of a block is read once.
class Reads {
 public:
  Reads(std::int64_t bytes, int threads);

  void run();
  std::int64_t bytes() const { return bytes_; }

 private:
  device::Ledger ledger_;
  std::int64_t bytes_;
  CpuBlock from_;
  int threads_;
  volatile std::uint64_t sum_ = 0;  ///< so that nothing is left out
};

/// Plain reading of files from their start, a rank's even part of each.
class FileReads {
 public:
  FileReads(const std::vector<std::filesystem::path>& paths, int rank, int ranks);

  void run();
  /// Asks the system to read them from disk again.
  void drop_from_cache();
  std::int64_t all_bytes() const { return all_bytes_; }  ///< of all ranks

 private:
  struct Part {
    FileDescriptor file;
    std::filesystem::path path;
    std::int64_t begin = 0, end = 0;
  };
  std::vector<Part> parts_;
  std::int64_t all_bytes_ = 0;
  std::vector<std::byte> piece_;
};

}  // namespace fsdp::bench
