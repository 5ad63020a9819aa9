// SPDX-License-Identifier: Apache-2.0

#include "floors.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::bench {
namespace {

using device::Cpu;
using device::MatmulRecord;

template <class T>
void fill(Tensor<T> values, float scale) {
  std::uint32_t state = 0x9e3779b9u;
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    state = state * 1664525u + 1013904223u;
    values.data()[i] = T(scale * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f));
  }
}

/// Bytes of the three operands, each rounded up for its place in a ring.
struct Sizes {
  std::int64_t a = 0, b = 0, c = 0;

  explicit Sizes(const MatmulRecord& record)
      : a(round_up(record.m * record.k * size_of(record.operands), device::alignment)),
        b(round_up(record.k * record.n * size_of(record.operands), device::alignment)),
        c(round_up(record.m * record.n * size_of(record.result), device::alignment)) {}
};

std::int64_t largest(const std::vector<MatmulRecord>& list, std::int64_t at_least, bool is_result) {
  std::int64_t bytes = at_least;
  for (const MatmulRecord& record : list) {
    const Sizes sizes(record);
    bytes = std::max(bytes, is_result ? sizes.c : sizes.a + sizes.b);
  }
  return bytes;
}

/// Returns the record's matmul, on contiguous operands.
template <class A, class C>
device::Matmul<A, C> matmul_of(const MatmulRecord& record, const std::byte* a, const std::byte* b, std::byte* c) {
  const Shape a_shape = record.a_transposed ? Shape{record.k, record.m} : Shape{record.m, record.k};
  const Shape b_shape = record.b_transposed ? Shape{record.n, record.k} : Shape{record.k, record.n};
  return {.a = {{reinterpret_cast<const A*>(a), a_shape}, record.a_transposed},
          .b = {{reinterpret_cast<const A*>(b), b_shape}, record.b_transposed},
          .c = {reinterpret_cast<C*>(c), {record.m, record.n}},
          .write = record.accumulate ? Write::accumulate : Write::overwrite};
}

/// Calls body(matmul) with the record's element types.
template <class Body>
void with_matmul(const MatmulRecord& record, const std::byte* a, const std::byte* b, std::byte* c, const Body& body) {
  if (record.operands == DType::f32)
    body(matmul_of<float, float>(record, a, b, c));
  else if (record.result == DType::f32)
    body(matmul_of<bf16, float>(record, a, b, c));
  else
    body(matmul_of<bf16, bf16>(record, a, b, c));
}

std::int64_t scratch_of(const std::vector<MatmulRecord>& list, int threads) {
  const Cpu::Planner planner(threads);
  std::int64_t bytes = 0;
  for (const MatmulRecord& record : list)
    with_matmul(record, nullptr, nullptr, nullptr,
                [&](const auto& matmul) { bytes = std::max(bytes, scratch(planner, matmul)); });
  return bytes + device::alignment;
}

/// A ring buffer: hands out the next `bytes`, from its start again if they do not fit.
class Ring {
 public:
  explicit Ring(const CpuBlock& block) : block_(&block) {}
  std::byte* take(std::int64_t bytes) {
    if (at_ + bytes > block_->bytes()) at_ = 0;
    return block_->data() + std::exchange(at_, at_ + bytes);
  }

 private:
  const CpuBlock* block_;
  std::int64_t at_ = 0;
};

}  // namespace

void fill_uniform(Tensor<float> values, float scale) { fill(values, scale); }
void fill_uniform(Tensor<bf16> values, float scale) { fill(values, scale); }

MatmulReplay::MatmulReplay(std::vector<MatmulRecord> list, std::int64_t ring_bytes, int threads)
    : list_(std::move(list)),
      arena_(ledger_, scratch_of(list_, threads)),
      stream_(arena_, threads),
      read_(ledger_, device::MemoryKind::scratch, round_up(largest(list_, ring_bytes, false), device::alignment)),
      written_(ledger_, device::MemoryKind::scratch, largest(list_, ring_bytes, true)) {
  for (const MatmulRecord& record : list_)
    flops_ += 2.0 * static_cast<double>(record.m) * static_cast<double>(record.n) * static_cast<double>(record.k);
  if (list_.empty()) return;
  if (list_.front().operands == DType::bf16)
    fill_uniform(Tensor<bf16>(reinterpret_cast<bf16*>(read_.data()), {read_.bytes() / 2}), 0.5f);
  else
    fill_uniform(Tensor<float>(reinterpret_cast<float*>(read_.data()), {read_.bytes() / 4}), 0.5f);
}

void MatmulReplay::run() {
  Ring read(read_), written(written_);
  for (const MatmulRecord& record : list_) {
    const Sizes sizes(record);
    const std::byte* const a = read.take(sizes.a + sizes.b);
    std::byte* const c = written.take(sizes.c);
    with_matmul(record, a, a + sizes.a, c, [&](const auto& matmul) { device::enqueue(stream_, matmul); });
  }
}

std::vector<MatmulRecord> square_matmuls(DType dtype, std::int64_t size, int count) {
  return std::vector<MatmulRecord>(static_cast<std::size_t>(count),
                                   {.m = size, .n = size, .k = size, .operands = dtype, .result = dtype});
}

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
  fill_uniform(Tensor<float>(reinterpret_cast<float*>(arrays_.data()), {3 * size}), 1.0f);
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
  constexpr std::int64_t at_once = 32;  // independent sums, which do not wait for each other
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
