// SPDX-License-Identifier: Apache-2.0
// expect 1: fsdp: a device lacks an operation
// expect 2: elsewhere::Negate
// expect 3: fsdp: an operation lacks cost() const
// expect 4: fsdp: an operation lacks tensors() const
// expect 5: fsdp: an operation lacks its name
// expect 6: fsdp: a device lacks an operation
// expect 7: fsdp: a device lacks an operation
// expect 8: fsdp: an operation has a check that is no void check() const, so that wrong arguments would reach
// expect 8: fsdp: an operation's scratch(stream, op) returns no std::int64_t, the bytes that its kernel needs
#include <string_view>
#include <tuple>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>

namespace elsewhere {

struct Named {
  static constexpr std::string_view name = "negate";
  fsdp::Tensor<float> x = {};
};

/// An operation that the CPU does not implement, except in case 0.
struct Negate : Named {
  auto tensors() const { return std::tie(x); }
  fsdp::device::Cost cost() const { return {.bytes = 2 * x.bytes()}; }
};

struct WithoutCost : Named {
  auto tensors() const { return std::tie(x); }
};

struct WithoutTensors : Named {
  fsdp::device::Cost cost() const { return {}; }
};

struct WithoutName {
  fsdp::Tensor<float> x = {};
  auto tensors() const { return std::tie(x); }
  fsdp::device::Cost cost() const { return {}; }
};

struct ChecksItsChange : Negate {
  void check();
};

#if CASE == 0
void run(fsdp::device::Cpu::Stream&, const Negate&) {}
#elif CASE == 8
int scratch(const fsdp::device::Cpu::Planner&, const Negate&) { return 8; }
void run(fsdp::device::Cpu::Stream&, const Negate&) {}
#elif CASE == 6
std::int64_t scratch(const fsdp::device::Cpu::Planner&, const Negate&) { return 8; }
void run(fsdp::device::Cpu::Stream&, const Negate&) {}  // does not take the scratch that the operation requests
#endif

}  // namespace elsewhere

namespace fsdp::device {

void use(Cpu::Stream& cpu, Meta::Stream& meta, Tensor<f16> half) {
  elsewhere::Negate negate;
#if CASE == 0
  enqueue(cpu, negate);
  enqueue(meta, negate);
  enqueue(meta, Fill<f16>{.y = half});
#elif CASE == 1
  enqueue(cpu, negate);
#elif CASE == 2
  enqueue(cpu, negate);
#elif CASE == 6
  enqueue(cpu, negate);
#elif CASE == 3
  enqueue(cpu, elsewhere::WithoutCost());
#elif CASE == 4
  enqueue(cpu, elsewhere::WithoutTensors());
#elif CASE == 5
  enqueue(cpu, elsewhere::WithoutName());
#elif CASE == 7
  enqueue(cpu, Fill<f16>{.y = half});
#elif CASE == 8
  enqueue(cpu, elsewhere::ChecksItsChange());
  enqueue(cpu, negate);
#endif
}

}  // namespace fsdp::device
