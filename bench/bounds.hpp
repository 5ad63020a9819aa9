// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lower bounds of run time, from the best rates of the machine: plain copies, a triad, reads. Each runs on a rank's
/// threads, in separate memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include <tessera/fsdp/core/file.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/memory.hpp>

namespace fsdp::bench {

using CpuBlock = device::Block<device::Cpu>;

/// A memcpy of `bytes` from one block to another.
class Copies {
 public:
  Copies(std::int64_t bytes, int threads);

  void run() { run(0, bytes()); }
  /// Copies `count` bytes, starting at byte `begin`.
  void run(std::int64_t begin, std::int64_t count);
  std::int64_t bytes() const { return from_.bytes(); }

 private:
  device::Ledger ledger_;
  CpuBlock from_, to_;
  int threads_;
};

/// STREAM's triad, a = b + s c, over three float arrays of `bytes` in total.
class Triad {
 public:
  Triad(std::int64_t bytes, int threads);

  void run();
  std::int64_t bytes() const { return arrays_.bytes(); }  ///< bytes that one run reads and writes

 private:
  device::Ledger ledger_;
  CpuBlock arrays_;
  int threads_;
};

/// Reads every byte of a block once.
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
  volatile std::uint64_t sum_ = 0;  ///< prevents the compiler from removing the reads
};

/// Plain sequential reads of files. Each rank reads an equal part of each file.
class FileReads {
 public:
  FileReads(const std::vector<std::filesystem::path>& paths, int rank, int ranks);

  void run();
  /// Requests that the operating system drop the files from its page cache, so that the next read comes from disk.
  void drop_from_cache();
  std::int64_t all_bytes() const { return all_bytes_; }  ///< bytes that all ranks read together

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
