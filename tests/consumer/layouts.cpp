// SPDX-License-Identifier: Apache-2.0
// Prints the sizes of types that are shared by a program and the library; other_compiler.sh compares them between two
// compilers.
#include <cstdio>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/trainer/train_main.hpp>

#include "examples/06_own_model/model.hpp"

namespace {

template <class T>
void print() {
  std::printf("%s %zu %zu\n", std::string(fsdp::type_name<T>()).substr(0, 60).c_str(), sizeof(T), alignof(T));
}

template <class Model>
void print_model() {
  using Local = typename Model::Local;
  using Block = typename Model::Block;
  print<Model>();
  print<typename Model::Config>();
  print<typename Model::Batch>();
  print<typename Model::Entry>();
  print<Block>();
  print<decltype(Block::block)>();
  print<typename Block::Saved>();
  print<typename Model::Head>();
  print<fsdp::nn::Context<Local>>();
  print<fsdp::nn::OneOf<decltype(Block::block), Block>>();
}

template <class Precision>
void print_models() {
  using Stack = fsdp::Stack<fsdp::RunTimeSharded, fsdp::comm::Threads<>, Precision, fsdp::tiling::RunTimeTiling>;
  using Planned = typename Stack::template WithComm<fsdp::comm::Simulated<>>;
  print_model<fsdp::Llama<Stack>>();
  print_model<fsdp::Llama<Planned>>();
  print_model<forecaster::Forecaster<Stack>>();
}

}  // namespace

int main() {
  print_models<fsdp::Fp32>();
  print_models<fsdp::Bf16Mixed>();
  print<fsdp::Parameter>();
  print<fsdp::sharding::Problem>();
  print<fsdp::sharding::Task>();
  print<fsdp::buffer::Layout>();
  print<fsdp::tiling::TilePlan>();
  print<fsdp::comm::Options>();
  print<fsdp::comm::Monitor>();
  print<fsdp::train::TrainOptions>();
  print<fsdp::optim::RunTimeOptimizer>();
}
