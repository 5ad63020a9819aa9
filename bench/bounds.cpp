// SPDX-License-Identifier: Apache-2.0

#include "bounds.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <tessera/fsdp/core/checked.hpp>

#include "../src/program/calibrate/computations.hpp"

namespace fsdp::bench {

Copies::Copies(std::int64_t bytes, int threads)
    : from_(ledger_, device::MemoryKind::scratch, bytes),
      to_(ledger_, device::MemoryKind::scratch, bytes),
      threads_(threads) {
  std::memset(from_.data(), 1, static_cast<std::size_t>(bytes));
}

void Copies::run(std::int64_t first, std::int64_t count) {
  const std::int64_t part = round_up(ceil_divide(count, threads_), device::alignment);
  const auto copy = [&](std::int64_t thread) {
    const std::int64_t begin = first + std::min(thread * part, count);
    const std::int64_t end = first + std::min((thread + 1) * part, count);
    if (begin < end) std::memcpy(to_.data() + begin, from_.data() + begin, static_cast<std::size_t>(end - begin));
  };
  if (threads_ == 1) return copy(0);
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
  for (std::int64_t thread = 0; thread < threads_; ++thread) copy(thread);
}

Triad::Triad(std::int64_t bytes, int threads)
    : arrays_(ledger_, device::MemoryKind::scratch, round_up(std::max<std::int64_t>(bytes, 1), 3 * device::alignment)),
      threads_(threads) {
  const std::int64_t size = arrays_.bytes() / 12;
  calibrate::fill_uniform(Tensor<float>(reinterpret_cast<float*>(arrays_.data()), {3 * size}), 1.0f);
}

void Triad::run() {
  const std::int64_t size = arrays_.bytes() / 12;
  float* const a = reinterpret_cast<float*>(arrays_.data());
  const float* const b = a + size;
  const float* const c = b + size;
  constexpr float s = 0.5f;
#pragma omp parallel for simd num_threads(threads_) schedule(static)
  for (std::int64_t i = 0; i < size; ++i) a[i] = b[i] + s * c[i];
}

Reads::Reads(std::int64_t bytes, int threads)
    : bytes_(bytes),
      from_(ledger_, device::MemoryKind::scratch, round_up(std::max<std::int64_t>(bytes, 1), device::alignment)),
      threads_(threads) {
  std::memset(from_.data(), 1, static_cast<std::size_t>(from_.bytes()));
}

void Reads::run() {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(from_.data());
  const std::int64_t count = from_.bytes() / std::int64_t{sizeof(std::uint64_t)};
  constexpr std::int64_t at_once = 32;  // independent sums, which avoid waiting for the previous addition
  std::uint64_t total = 0;
#pragma omp parallel num_threads(threads_) reduction(+ : total)
  {
    std::array<std::uint64_t, at_once> sums{};
#pragma omp for schedule(static)
    for (std::int64_t begin = 0; begin <= count - at_once; begin += at_once)
      for (std::int64_t i = 0; i < at_once; ++i) sums[static_cast<std::size_t>(i)] += words[begin + i];
    for (const std::uint64_t sum : sums) total += sum;
  }
  sum_ = total;
}

FileReads::FileReads(const std::vector<std::filesystem::path>& paths, int rank, int ranks)
    : piece_(std::size_t{4} << 20) {
  for (const std::filesystem::path& path : paths) {
    Part part{.file = open_file(path, O_RDONLY, "opened"), .path = path};
    const std::int64_t bytes = size_of(part.file, path);
    all_bytes_ += bytes;
    part.begin = bytes * rank / ranks;
    part.end = bytes * (rank + 1) / ranks;
    parts_.push_back(std::move(part));
  }
}

void FileReads::run() {
  for (const Part& part : parts_)
    for (std::int64_t at = part.begin; at < part.end; at += std::ssize(piece_))
      read_all(part.file, part.path, piece_.data(),
               static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(piece_), part.end - at)), at);
}

void FileReads::drop_from_cache() {
  for (const Part& part : parts_) {
    ::fdatasync(part.file.get());
    ::posix_fadvise(part.file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

}  // namespace fsdp::bench
