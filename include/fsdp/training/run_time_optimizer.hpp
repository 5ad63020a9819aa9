// SPDX-License-Identifier: Apache-2.0
/// @file
/// An optimizer that is chosen at run time, for example by `--optimizer`. Its updates on the CPU, and those of dry runs
/// for the CPU, are compiled into the library.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/training/muon.hpp>

namespace fsdp::optim {

/// One of the library's optimizers. To add one, add its type here.
struct RunTimeOptimizer {
  std::variant<AdamW, Sgd, Muon> kind = AdamW{};  ///< the selected optimizer with its constants

  static constexpr bool reads_decay = true;  ///< all of them do, from Parameter::decay_of

  std::string_view name() const;
  Grain grain() const;
  std::span<const std::string_view> states(const Parameter& parameter) const;

  template <class Stream, class Compute>
  void update(Stream& stream, const Update<Compute>& piece, Tensor<const device::StepDecision> decision) const;

  void validate() const;
  /// Returns the cost function of the selected optimizer.
  StepWork step_work() const;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor);

  friend bool operator==(const RunTimeOptimizer&, const RunTimeOptimizer&) = default;
};

template <class Stream, class Compute>
void RunTimeOptimizer::update(Stream& stream, const Update<Compute>& piece,
                              Tensor<const device::StepDecision> decision) const {
  std::visit([&](const auto& optimizer) { optimizer.update(stream, piece, decision); }, kind);
}

template <class Self, class Visitor>
void RunTimeOptimizer::visit(Self& self, Visitor&& visitor) {
  std::visit([&]<class O>(O& optimizer) { O::visit(optimizer, visitor); }, self.kind);
}
extern template void RunTimeOptimizer::visit(RunTimeOptimizer&, ValueList&);

/// An update that is compiled into the library; `how` is `extern template` or `template`.
#define FSDP_RUN_TIME_UPDATE(how, Stream, Compute) \
  how void RunTimeOptimizer::update(Stream&, const Update<Compute>&, Tensor<const device::StepDecision>) const;

FSDP_RUN_TIME_UPDATE(extern template, device::Cpu::Stream, float)
FSDP_RUN_TIME_UPDATE(extern template, device::Cpu::Stream, bf16)
FSDP_RUN_TIME_UPDATE(extern template, device::Meta::Stream, float)
FSDP_RUN_TIME_UPDATE(extern template, device::Meta::Stream, bf16)

}  // namespace fsdp::optim
