// SPDX-License-Identifier: Apache-2.0
// 17: embedded in an existing program. The program has its own threads, MPI and event loop, and keeps them.
//
// A regression is trained twice: by two threads that this program creates, then by the processes of its own MPI_Init,
// on a communicator that exists already. The loop polls, and does other work while weights are in flight. In step 4 one
// rank gets an invalid record and forfeits its pass: all ranks skip that step. In step 8 one rank throws an error that
// ends its run: the others are notified at once, and all continue with a new communicator from weights that the host
// has saved.
//
// Runs as a single process, or as `mpirun -np 3 17_inside_a_program`.
//
// Try next: let another rank fail; increase the number of steps; use fsdp::Zero1.
#include <cstdio>
#include <exception>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include <tessera/comm/mpi.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sharded.hpp>

#include "regression.hpp"

namespace {

constexpr int steps = 12, bad_record = 4, failure = 8;

/// State that the host saves between communicators: unsharded weights by name, and the next step.
struct Kept {
  std::map<std::string, std::vector<float>> weights;
  int step = 0;
  long idle = 0;  ///< number of iterations of the event loop in which the host did other work
};

/// Broadcasts the state that rank 0 has saved: a failure may have reached other ranks before they saved the same step.
template <class Comm>
void share(Comm& ranks, Kept& kept) {
  const auto broadcast = [&]<class T>(std::span<T> values) {
    fsdp::comm::broadcast(ranks, std::as_writable_bytes(values), 0, {"what the host keeps"});
  };
  broadcast(std::span(&kept.step, 1));
  if (kept.step == 0) return;
  for (const fsdp::Unit& unit : regression::units())
    for (const fsdp::Parameter& parameter : unit.parameters) {
      std::vector<float>& whole = kept.weights[parameter.name];
      whole.resize(static_cast<std::size_t>(parameter.shape.numel()));
      broadcast(std::span(whole));
    }
}

/// Waits for the next computation in an event loop.
template <class Pass>
void wait(Pass& pass, Kept& kept) {
  while (!pass.poll()) {
    ++kept.idle;
    std::this_thread::yield();
  }
}

/// Trains from the saved state to the last step. Throws an error of this rank, or CollectiveError if a peer has failed.
template <class Comm>
void train(Comm& ranks, Kept& kept, bool fails) {
  fsdp::Sharded<fsdp::Stack<fsdp::FullyShard<>, Comm, fsdp::Fp32>> model(ranks, regression::units());
  model.initialize(1);
  share(ranks, kept);
  for (const auto& [name, values] : kept.weights) model.set(name, values);
  const regression::Record record(ranks.rank());
  for (; kept.step < steps; ++kept.step) {
    const bool last = ranks.rank() == ranks.size() - 1;
    if (fails && last && kept.step == failure) throw std::runtime_error("the host's own error");
    double loss = 0;
    auto pass = model.train();
    try {
      wait(pass, kept);
      if (last && kept.step == bad_record && ranks.size() > 1) throw std::invalid_argument("a bad record");
      loss = regression::compute(pass, record, ranks.size());
      wait(pass, kept);
      pass.finish();
    } catch (const std::invalid_argument&) {
      pass.forfeit();
    }
    const auto decision = model.step(loss, {.lr = 0.05});
    if (ranks.rank() == 0 && decision.forfeited >= 0)
      std::printf("  step %d: rank %d gave its pass up, all skip it\n", kept.step, decision.forfeited);
    if (ranks.rank() == 0 && kept.step % 5 == 0) std::printf("  step %d  loss %.4f\n", kept.step, decision.loss);
    model.with_full({"*"}, [&](const fsdp::Parameter& parameter, fsdp::Tensor<const float> whole) {
      kept.weights[parameter.name].assign(whole.data(), whole.data() + whole.numel());
    });
  }
}

/// Trains. After a failure trains once more, with a new communicator.
template <class Join>
void train_surviving(const Join& join) {
  Kept kept;
  for (const bool fails : {true, false}) {
    try {
      auto ranks = join(fails);
      train(ranks, kept, fails && ranks.size() > 1);
      return;
    } catch (const fsdp::comm::CollectiveError& error) {
      std::printf("  a rank heard: %s\n", error.what());
    } catch (const std::exception&) {  // an error of this rank, of which its communicator has notified the others
    }
  }
}

void with_threads() {
  fsdp::comm::ThreadRanks first(2), second(2);
  const auto rank = [&](int number) {
    train_surviving([&](bool fails) { return (fails ? first : second).join(number); });
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    std::printf("two threads of this program:\n");
    with_threads();
    std::printf("processes of this program's MPI:\n");
  }
  train_surviving([](bool) { return fsdp::comm::Mpi<>::adopt(MPI_COMM_WORLD); });
  MPI_Finalize();
  return 0;
}
