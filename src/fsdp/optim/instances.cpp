// SPDX-License-Identifier: Apache-2.0
// Explicit instantiations of memory, lists of structs, and modules. They are in a separate source file, with lists
// first, because g++ 12 omits members that earlier code of the same file has inlined.
#include <tessera/fsdp/optim/sharded_optimizer.hpp>

#include <type_traits>
#include <vector>

#include <tessera/comm/communicator.hpp>
#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/optim/statistics.hpp>
#include <tessera/fsdp/optim/step_control.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/slots.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>
#include <tessera/tiling/problem.hpp>

template class fsdp::device::Arena<fsdp::device::Cpu>;
template class fsdp::device::Arena<fsdp::device::Meta>;
template class std::vector<fsdp::comm::Segment<float>>;
template class std::vector<fsdp::comm::Segment<fsdp::bf16>>;
template class std::vector<fsdp::comm::Exchange<float>>;
template class std::vector<fsdp::comm::Exchange<fsdp::bf16>>;
template class std::vector<fsdp::buffer::Run>;
template class std::vector<fsdp::buffer::Layout>;
template class std::vector<fsdp::buffer::TensorRange>;
template class std::vector<fsdp::buffer::TensorSpec>;
template class std::vector<fsdp::buffer::TensorGroup>;
template class std::vector<const fsdp::GroupTensors*>;
template class std::vector<fsdp::ParameterShard<float, float, float>>;
template class std::vector<fsdp::ParameterShard<float, fsdp::bf16, float>>;
template class std::vector<fsdp::Order>;
template class std::vector<fsdp::Unit>;
template class std::vector<fsdp::GroupedParameters>;
template class std::vector<fsdp::Reference>;
template class std::vector<std::vector<fsdp::Reference>>;
template class std::vector<fsdp::OptimizerGroup>;
template class std::vector<fsdp::optim::State>;
template class std::vector<fsdp::optim::StatePiece>;
template class std::vector<fsdp::Statistic>;
template class std::vector<fsdp::optim::StepKind>;
template class std::vector<fsdp::StrategyPart>;
template class std::vector<fsdp::sharding::UnitUse>;
template class std::vector<fsdp::sharding::GroupFacts>;
template class std::vector<fsdp::sharding::Computation>;
template class std::vector<fsdp::sharding::Hold>;
template class std::vector<fsdp::sharding::Task>;
template class std::vector<fsdp::sharding::Stage>;
template class std::vector<fsdp::tiling::Tile>;

static_assert(std::is_same_v<fsdp::OneAxis<fsdp::comm::Threads<>, fsdp::Fp32>,
                             fsdp::TypesOf<fsdp::Stack<fsdp::FullyShard<>, fsdp::comm::Threads<>, fsdp::Fp32>>>);

FSDP_MODULE_INSTANCES(template, fsdp::OneAxis<fsdp::comm::Threads<>, fsdp::Fp32>)
FSDP_MODULE_INSTANCES(template, fsdp::OneAxis<fsdp::comm::Threads<>, fsdp::Bf16Mixed>)
