// SPDX-License-Identifier: Apache-2.0
/// @file
/// Common parts of the GPU benches: main, remaining time, operands, and the time of a call.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <tessera/fsdp/device/compute/cuda.hpp>

namespace fsdp::gpu {

using device::Cuda;

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The remaining time of a program.
class TimeLeft {
 public:
  explicit TimeLeft(double seconds) : end_(seconds_now() + seconds) {}

  /// Whether `seconds` more fit into the remaining time. If they do not, prints a line which reports that `bench` is
  /// omitted.
  bool suffices(const std::string& bench, double seconds) const {
    const double left = end_ - seconds_now();
    if (seconds <= left) return true;
    std::printf("{\"bench\": \"%s\", \"left_out\": \"it would take %.0f s, and %.0f s are left\"}\n", bench.c_str(),
                seconds, std::max(left, 0.0));
    std::fflush(stdout);
    return false;
  }

 private:
  double end_;
};

/// Seconds for one of the calls that `call` enqueues: the median of 7 rounds, each with at least 20 ms of work.
template <class Call>
double seconds_of(Cuda::Queue& queue, Call call) {
  const auto seconds = [&](int calls) {
    queue.synchronize();
    const double begin = seconds_now();
    for (int i = 0; i < calls; ++i) call();
    queue.synchronize();
    return seconds_now() - begin;
  };
  seconds(2);
  const int calls = std::clamp(static_cast<int>(0.02 / seconds(1)), 1, 1000) + 1;
  std::vector<double> rounds;
  for (int round = 0; round < 7; ++round) rounds.push_back(seconds(calls) / calls);
  std::nth_element(rounds.begin(), rounds.begin() + 3, rounds.end());
  return rounds[3];
}

/// Fills contiguous memory with repetitions of `values`.
template <class T>
void fill_with(Cuda::Queue& queue, const std::vector<T>& values, Tensor<T> tensor) {
  std::int64_t done = std::min<std::int64_t>(std::ssize(values), tensor.numel());
  device::move<Cuda>(queue, values.data(), tensor.data(), done);
  for (std::int64_t count = 0; done < tensor.numel(); done += count) {
    count = std::min(done, tensor.numel() - done);
    device::move<Cuda, T>(queue, tensor.data(), tensor.data() + done, count);
  }
  queue.synchronize();  // `values` may be freed afterwards
}

/// Uniform in [-scale, scale): the power consumption of a matmul depends on the values of its operands.
template <class T>
std::vector<T> uniform(float scale, std::size_t count = std::size_t{1} << 20) {
  std::vector<T> values(count);
  std::uint32_t state = 0x9e3779b9u;
  for (T& value : values) {
    state = state * 1664525u + 1013904223u;
    value = T(scale * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f));
  }
  return values;
}

/// FLOP/s of a bf16 product [8192, 4096] x [4096, 12288]: the matmul rate of this card.
inline double matmul_rate() {
  constexpr std::int64_t m = 8192, k = 4096, n = 12288;
  device::Ledger ledger;
  Cuda::Arena arena(ledger, std::int64_t{512} << 20);
  Cuda::Stream stream(arena);
  const auto a = arena.allocate<bf16>(Cuda::Arena::End::low, {m, k});
  const auto b = arena.allocate<bf16>(Cuda::Arena::End::low, {n, k});
  const auto c = arena.allocate<bf16>(Cuda::Arena::End::low, {m, n});
  fill_with(stream, uniform<bf16>(1.0f), a);
  fill_with(stream, uniform<bf16>(0.02f), b);
  return 2.0 * m * k * n / seconds_of(stream, [&] {
           device::enqueue(stream,
                           device::Matmul<bf16>{.a = Tensor<const bf16>(a), .b = device::transposed(b), .c = c});
         });
}

/// Runs `bench(time_left)` if there is a device. The only argument of the program is the number of seconds that it may
/// take.
template <class Bench>
int run_bench(int argc, char** argv, Bench bench) {
  if (const std::string problem = device::cuda_problem(); !problem.empty()) {
    std::printf("{\"bench\": \"all\", \"skipped\": \"%s\"}\n", problem.c_str());
    return 0;
  }
  try {
    bench(TimeLeft(argc > 1 ? std::atof(argv[1]) : 240.0));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 2;
  }
  return 0;
}

}  // namespace fsdp::gpu
