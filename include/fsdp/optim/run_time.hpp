// SPDX-License-Identifier: Apache-2.0
/// @file
/// An optimizer that is chosen at run time, as by `--optimizer`.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include <fsdp/core/bf16.hpp>
#include <fsdp/core/named_values.hpp>
#include <fsdp/device/cpu.hpp>
#include <fsdp/device/meta.hpp>
#include <fsdp/optim/adamw.hpp>
#include <fsdp/optim/muon.hpp>
#include <fsdp/optim/optimizer.hpp>
#include <fsdp/optim/sgd.hpp>

namespace fsdp::optim {

/// One of the library's optimizers. To add one, add its type here.
struct RunTime {
  std::variant<AdamW, Sgd, Muon> kind = AdamW{};

  std::string_view name() const;
  Grain grain() const;
  std::span<const std::string_view> states(const NamedParameter& parameter) const;

  template <class Stream, class Compute>
  void update(Stream& stream, const Update<Compute>& piece, Tensor<const device::StepDecision> decision) const;

  void validate() const;
  /// The cost function of the optimizer that it holds.
  StepWork step_work() const;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor);

  friend bool operator==(const RunTime&, const RunTime&) = default;
};

template <class Stream, class Compute>
void RunTime::update(Stream& stream, const Update<Compute>& piece, Tensor<const device::StepDecision> decision) const {
  std::visit([&](const auto& optimizer) { optimizer.update(stream, piece, decision); }, kind);
}

template <class Self, class Visitor>
void RunTime::visit(Self& self, Visitor&& visitor) {
  std::visit([&]<class O>(O& optimizer) { O::visit(optimizer, visitor); }, self.kind);
}
extern template void RunTime::visit(RunTime&, ValueList&);

/// Compiled into the library for stacks on the CPU and their dry runs.
#define FSDP_RUN_TIME_UPDATE(how, Stream, Compute) \
  how void RunTime::update(Stream&, const Update<Compute>&, Tensor<const device::StepDecision>) const;

FSDP_RUN_TIME_UPDATE(extern template, device::Cpu::Stream, float)
FSDP_RUN_TIME_UPDATE(extern template, device::Cpu::Stream, bf16)
FSDP_RUN_TIME_UPDATE(extern template, device::Meta::Stream, float)
FSDP_RUN_TIME_UPDATE(extern template, device::Meta::Stream, bf16)

}  // namespace fsdp::optim
