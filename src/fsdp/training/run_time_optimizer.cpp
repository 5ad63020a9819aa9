// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/training/run_time_optimizer.hpp>

namespace fsdp::optim {

std::string_view RunTimeOptimizer::name() const {
  return std::visit([](const auto& optimizer) { return std::string_view(optimizer.name()); }, kind);
}

Grain RunTimeOptimizer::grain() const {
  return std::visit([](const auto& optimizer) { return optimizer.grain(); }, kind);
}

std::span<const std::string_view> RunTimeOptimizer::states(const Parameter& parameter) const {
  return std::visit([&](const auto& optimizer) { return optimizer.states(parameter); }, kind);
}

void RunTimeOptimizer::validate() const {
  std::visit([](const auto& optimizer) { optimizer.validate(); }, kind);
}

StepWork RunTimeOptimizer::step_work() const {
  return std::visit([](const auto& optimizer) { return optim::step_work(optimizer); }, kind);
}

template void RunTimeOptimizer::visit(RunTimeOptimizer&, ValueList&);

}  // namespace fsdp::optim
