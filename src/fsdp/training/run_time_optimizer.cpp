// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/training/run_time_optimizer.hpp>

namespace fsdp::optim {

std::int64_t Muon::block(const Parameter& parameter) const {
  if (!is_matrix(parameter)) return 0;
  const bool heads = per_head && parameter.block > 0 && parameter.block % matrix_of(parameter.shape)[1] == 0;
  return heads ? parameter.block : parameter.shape.numel();
}

std::int64_t Muon::work(const Parameter& parameter) const {
  if (!is_matrix(parameter)) return parameter.shape.numel();
  const std::int64_t elements = block(parameter), columns = matrix_of(parameter.shape)[1], rows = elements / columns;
  const std::int64_t small = std::min(rows, columns), large = std::max(rows, columns);
  return parameter.shape.numel() / elements * iterations * 2 * small * small * (2 * large + small);
}

void Muon::validate() const {
  require_constant(momentum >= 0 && static_cast<float>(momentum) < 1, "momentum", momentum,
                   "at least 0 and below 1 as a float");
  require_constant(iterations >= 1 && iterations <= 100, "iterations", static_cast<double>(iterations), "1 to 100");
  adamw.validate();
}

std::string_view RunTimeOptimizer::name() const {
  return std::visit([](const auto& optimizer) { return std::string_view(optimizer.name()); }, kind);
}

Grain RunTimeOptimizer::grain() const {
  return std::visit([](const auto& optimizer) { return optimizer.grain(); }, kind);
}

std::span<const StateSpec> RunTimeOptimizer::states(const Parameter& parameter) const {
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
